# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What an error tells the user to set can be set: every key that a remedy names is a valid override."""

import ast
import re
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
# Short for actor_rollout_ref.<role> in a sentence.
ROLES = ("actor", "ref", "rollout", "model")
ROOTS = (*ROLES, "actor_rollout_ref", "data", "trainer", "algorithm", "reward", "critic", "async_training")
KEY = re.compile(rf"(?<![\w.])(\+?(?:{'|'.join(ROOTS)})(?:\.[a-z_0-9]+)+)")


def remedies() -> list[tuple[str, str]]:
    """(place, key) of every key in a `remedy=`."""
    found = []
    for path in Path(verl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for argument in node.keywords if isinstance(node, ast.Call) else ():
                if argument.arg == "remedy":
                    texts = [part.value for part in ast.walk(argument.value) if isinstance(part, ast.Constant)]
                    text = " ".join(text for text in texts if isinstance(text, str))
                    found += [(f"{path.name}:{node.lineno}", key.rstrip(".")) for key in KEY.findall(text)]
    return found


def settable(key: str, composed: list[DictConfig]) -> bool:
    name = key.removeprefix("+")
    for full in (name, f"actor_rollout_ref.{name}") if name.split(".")[0] in ROLES else (name,):
        parent, _, leaf = full.rpartition(".")
        sections = (OmegaConf.select(config, parent) for config in composed)
        # `+` adds a key that the file does not have: its section must be there.
        if any(isinstance(item, DictConfig) and (key[0] == "+" or leaf in item.keys()) for item in sections):  # noqa: SIM118
            return True
    return False


def test_every_key_that_a_remedy_names_can_be_set() -> None:  # WT07
    composed = [compose_config(CommandLine((), name, module)) for name, module in FILES]
    found = remedies()
    assert len(found) > 20
    unknown = [(place, key) for place, key in found if not settable(key, composed)]
    assert unknown == []


@pytest.mark.parametrize("key", ["reward.no_such_key", "actor_rollout_ref.rollout.no_such_key", "+no.such.section"])
def test_an_unknown_key_would_be_found(key: str) -> None:
    assert not settable(key, [compose_config(CommandLine((), *FILES[0]))])
