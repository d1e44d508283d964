# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What an error tells the user to set can be set: every key that a message names is a valid override."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

import verl
from verl.config.compose import CommandLine, compose_config

FILES = (
    ("ppo_trainer", "verl.trainer.config"),
    ("fully_async_ppo_trainer", "verl.experimental.fully_async_policy.config"),
    ("sft_trainer_engine", "verl.trainer.config"),
)
# A call whose texts a user acts on: an error of ours, or a line of the log.
SPEAKS = re.compile(r"(Error|Lost|Timeout|UnsupportedImport|logger\.(info|warning|error))$")
# Where an error is said to be is a key that the user has set already, or a place inside a batch.
NOT_ADVICE = {"where", "got"}
KEY = re.compile(r"(?<![\w./@$])(\+?[a-z_]+(?:\.[a-z_0-9]+)+)(?![\w(/])")


def advice() -> list[tuple[str, str]]:
    """(place, dotted word) of every dotted word in a text that tells a user what is wrong or what to do."""
    found = []
    for path in Path(verl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not SPEAKS.search(ast.unparse(node.func)):
                continue
            spoken = [*node.args, *(argument.value for argument in node.keywords if argument.arg not in NOT_ADVICE)]
            texts = [part.value for item in spoken for part in ast.walk(item) if isinstance(part, ast.Constant)]
            words = KEY.findall(" ".join(text for text in texts if isinstance(text, str)))
            found += [(f"{path.name}:{node.lineno}", word.rstrip(".")) for word in words]
    return found


def paths_of(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Full path of every key and section."""
    for key in config:
        yield f"{prefix}{key}"
        inner = config._get_node(key)
        if isinstance(inner, DictConfig) and not (inner._is_none() or inner._is_interpolation()):
            yield from paths_of(inner, f"{prefix}{key}.")


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Every path of the primary files, and every shorter way to say it ("rollout.n", "fsdp_config.dtype")."""
    full = [path for name, module in FILES for path in paths_of(compose_config(CommandLine((), name, module)))]
    return {".".join(path.split(".")[start:]) for path in full for start in range(path.count(".") + 1)}


def is_key(word: str, known: set[str]) -> bool:
    """Whether a dotted word speaks of the configuration at all: it begins as a section does."""
    head = word.lstrip("+").split(".")[0]
    # A section is called so too, but what is spoken of is the library.
    return head != "torch" and any(path.startswith(f"{head}.") for path in known)


def settable(key: str, known: set[str]) -> bool:
    if key[0] != "+":
        return key in known
    # `+` adds a key, or a section with a key, that the file does not have: what it is added to must be there.
    section = key[1:].rpartition(".")[0]
    return section in known or ("." in section and section.rpartition(".")[0] in known and section.count(".") > 1)


def test_every_key_that_a_message_names_can_be_set(known: set[str]) -> None:
    found = [(place, word) for place, word in advice() if is_key(word, known)]
    assert len(found) > 60
    assert [(place, key) for place, key in found if not settable(key, known)] == []


@pytest.mark.parametrize("key", ["reward.no_such_key", "actor_rollout_ref.rollout.no_such_key", "+data.no.such.key"])
def test_an_unknown_key_would_be_found(key: str, known: set[str]) -> None:
    assert is_key(key, known) and not settable(key, known)


def test_the_size_of_a_bucket_is_set_where_the_documentation_says() -> None:
    key = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
    for name, module in FILES[:2]:
        assert OmegaConf.select(compose_config(CommandLine((f"{key}=4096",), name, module)), key) == 4096
