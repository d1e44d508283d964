# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The override keys of upstream's 12 fully asynchronous FSDP launch scripts compose, build and validate.

tests/data/launch_scripts.json spreads every key of those scripts, with the values seen, over 12 command lines; keys of
its Megatron scripts are left out.
"""

import json
from pathlib import Path

import pytest

from verl.config import validate
from verl.config.front_door import load

SCRIPTS = json.loads((Path(__file__).parents[1] / "data" / "launch_scripts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_launch_script_composes_builds_and_validates(name: str) -> None:
    config, composed = load(SCRIPTS[name])
    validate(config)
    given = dict(line.lstrip("+").split("=", 1) for line in SCRIPTS[name])
    assert config.actor_rollout_ref.rollout.n == int(given["actor_rollout_ref.rollout.n"])
    assert config.reward.reward_kwargs["max_resp_len"] == int(given["+reward.reward_kwargs.max_resp_len".lstrip("+")])
    assert config.trainer.default_local_dir == given["trainer.default_local_dir"]
    assert composed.actor_rollout_ref.model.override_config.max_position_embeddings == 32768


def test_every_key_of_the_scripts_is_covered() -> None:
    keys = {line.lstrip("+").partition("=")[0] for lines in SCRIPTS.values() for line in lines}
    assert len(SCRIPTS) == 12 and len(keys) >= 120
