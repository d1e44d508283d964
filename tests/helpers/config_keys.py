# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which dotted words of a text speak of the configuration, and whether they can be set."""

import functools
import re
from collections.abc import Iterator

from omegaconf import DictConfig

from verl.config.compose import CommandLine, compose_config

FILES = (
    ("ppo_trainer", "verl.trainer.config"),
    ("fully_async_ppo_trainer", "verl.experimental.fully_async_policy.config"),
    ("sft_trainer_engine", "verl.trainer.config"),
    ("evaluation", "verl.trainer.config"),
)
# Sections that the files leave out, and that take any key.
FREE = ("reward.reward_kwargs",)
WORD = re.compile(r"(?<![\w./@$])(\+?[a-z_]+(?:\.[a-z_0-9]+)+)(?![\w(/])")


def keys_in(text: str) -> list[str]:
    """The dotted words of `text` that speak of the configuration: they begin as a section does."""
    return [word for word in WORD.findall(text) if _is_key(word)]


def settable(key: str) -> bool:
    """Whether `key=…` is an override, given in full or by its last parts ("rollout.n", "fsdp_config.dtype")."""
    if key[0] != "+":
        return key in _known()
    # `+` adds a key, or a section with a key, that the file does not have: what it is added to must be there.
    section = key[1:].rpartition(".")[0]
    above = section.rpartition(".")[0]
    return section in _known() or section in FREE or (above.count(".") > 0 and above in _known())


def _is_key(word: str) -> bool:
    head = word.lstrip("+").split(".")[0]
    # A section is called so too, but what is spoken of is the library.
    return head != "torch" and any(path.startswith(f"{head}.") for path in _known())


@functools.cache
def _known() -> frozenset[str]:
    """Every path of the primary files, and every shorter way to say it."""
    full = [path for name, module in FILES for path in _paths(compose_config(CommandLine((), name, module)))]
    return frozenset(".".join(path.split(".")[start:]) for path in full for start in range(path.count(".") + 1))


def _paths(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Full path of every key and section."""
    for key in config:
        yield f"{prefix}{key}"
        inner = config._get_node(key)
        if isinstance(inner, DictConfig) and not (inner._is_none() or inner._is_interpolation()):
            yield from _paths(inner, f"{prefix}{key}.")
