# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The old configuration functions."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from verl.config import FSDPActorConfig, FSDPOptimizerConfig, SamplingConfig
from verl.config.front_door import load
from verl.errors import ConfigError
from verl.utils.config import omega_conf_to_dataclass, update_dict_with_config, validate_config


def test_a_section_becomes_the_class_that_its_target_names() -> None:
    section = OmegaConf.create({"_target_": "verl.workers.config.FSDPOptimizerConfig", "lr": 0.5})
    assert omega_conf_to_dataclass(section) == FSDPOptimizerConfig(lr=0.5)


def test_a_section_becomes_the_class_that_is_asked_for() -> None:
    made = omega_conf_to_dataclass({"n": 3, "mine": 1}, SamplingConfig)
    assert (made.n, made.mine) == (3, 1)
    assert omega_conf_to_dataclass(None, FSDPActorConfig) == FSDPActorConfig()


def test_a_class_of_the_users_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_config_module.py").write_text(
        "from dataclasses import dataclass\nfrom verl.base_config import BaseConfig\n"
        "@dataclass(frozen=True)\nclass Mine(BaseConfig):\n    size: int = 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert omega_conf_to_dataclass({"_target_": "my_config_module.Mine", "size": 4}).size == 4


def test_a_section_without_a_class_is_refused() -> None:
    with pytest.raises(ConfigError, match="pass dataclass_type"):
        omega_conf_to_dataclass({"n": 3})


def test_known_keys_are_overwritten() -> None:
    target = {"a": 1, "b": 2}
    update_dict_with_config(target, OmegaConf.create({"b": 3, "c": 4}))
    assert target == {"a": 1, "b": 3}


def test_validation_by_the_old_name_refuses_the_same() -> None:
    overrides = ["actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.actor.use_dynamic_bsz=True"]
    _, good = load(overrides, "verl.trainer.config", "ppo_trainer")
    validate_config(good, use_reference_policy=False, use_critic=True)
    _, bad = load([*overrides, "data.train_batch_size=100"], "verl.trainer.config", "ppo_trainer")
    with pytest.raises(ConfigError, match=r"data\.train_batch_size=100"):
        validate_config(bad, use_reference_policy=False, use_critic=True)
