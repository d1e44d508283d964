# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What an error tells the user to set can be set: every key that a message names is a valid override."""

import ast
import re
from pathlib import Path

import pytest
from config_keys import FILES, keys_in, settable
from omegaconf import OmegaConf

import verl
from verl.config.compose import CommandLine, compose_config

# A call whose texts a user acts on: an error of ours, or a line of the log.
SPEAKS = re.compile(r"(Error|Lost|Timeout|UnsupportedImport|logger\.(info|warning|error))$")
# Where an error is said to be is a key that the user has set already, or a place inside a batch.
NOT_ADVICE = {"where", "got"}


def advice() -> list[tuple[str, str]]:
    """(place, key) of every key in a text that tells a user what is wrong or what to do."""
    found = []
    for path in Path(verl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not SPEAKS.search(ast.unparse(node.func)):
                continue
            spoken = [*node.args, *(argument.value for argument in node.keywords if argument.arg not in NOT_ADVICE)]
            texts = [part.value for item in spoken for part in ast.walk(item) if isinstance(part, ast.Constant)]
            words = keys_in(" ".join(text for text in texts if isinstance(text, str)))
            found += [(f"{path.name}:{node.lineno}", word) for word in words]
    return found


def test_every_key_that_a_message_names_can_be_set() -> None:
    found = advice()
    assert len(found) > 60
    assert [(place, key) for place, key in found if not settable(key)] == []


@pytest.mark.parametrize("key", ["reward.no_such_key", "actor_rollout_ref.rollout.no_such_key", "+data.no.such.key"])
def test_an_unknown_key_would_be_found(key: str) -> None:
    assert keys_in(f"Set {key}=1, or torch.nn.") == [key] and not settable(key)


def test_the_size_of_a_bucket_is_set_where_the_documentation_says() -> None:
    key = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
    for name, module in FILES[:2]:
        assert OmegaConf.select(compose_config(CommandLine((f"{key}=4096",), name, module)), key) == 4096
