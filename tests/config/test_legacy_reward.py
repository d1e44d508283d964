# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old reward keys override only where set; afterwards the old sections are gone."""

import copy
from typing import Any

import pytest
from omegaconf import OmegaConf

from verl.config import build_config, migrate_legacy_reward_impl
from verl.config.sft import build_eval_config


def migrated(config: Any, *pairs: tuple[str, Any]) -> Any:
    config = copy.deepcopy(config)
    for key, value in pairs:
        OmegaConf.update(config, key, value, force_add=True)
    return migrate_legacy_reward_impl(config)


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("reward_model.num_workers", 3, "reward.num_workers"),
        ("reward_model.reward_manager", "dapo", "reward.reward_manager.name"),
        ("reward_model.reward_loop_source", "importlib", "reward.reward_manager.source"),
        ("reward_model.reward_loop_module_path", "m.py", "reward.reward_manager.module.path"),
        ("reward_model.reward_loop_class_name", "M", "reward.reward_manager.module.name"),
        ("custom_reward_function.path", "f.py", "reward.custom_reward_function.path"),
        ("custom_reward_function.name", "f", "reward.custom_reward_function.name"),
        ("reward_model.enable", True, "reward.reward_model.enable"),
        ("reward_model.enable_resource_pool", True, "reward.reward_model.enable_resource_pool"),
        ("reward_model.n_gpus_per_node", 2, "reward.reward_model.n_gpus_per_node"),
        ("reward_model.nnodes", 2, "reward.reward_model.nnodes"),
        ("reward_model.model.path", "/m", "reward.reward_model.model_path"),
        ("reward_model.reward_kwargs", {"max_resp_len": 9}, "reward.reward_kwargs"),
        ("sandbox_fusion.url", "http://x", "reward.sandbox_fusion.url"),
    ],
)
def test_an_old_key_stands_at_its_new_place(minimal: Any, old: str, value: Any, new: str) -> None:
    config = migrated(minimal, (old, value))
    assert OmegaConf.select(config, new) == value
    assert not {"custom_reward_function", "reward_model", "sandbox_fusion"} & set(config)


def test_an_old_rollout_section_changes_only_what_it_sets(minimal: Any) -> None:
    before = OmegaConf.to_container(minimal.reward.reward_model.rollout)
    after = migrated(minimal, ("reward_model.rollout.dtype", "float16")).reward.reward_model.rollout
    assert OmegaConf.to_container(after) == {**before, "dtype": "float16"}


def test_untouched_old_sections_change_nothing(minimal: Any) -> None:
    assert migrated(minimal).reward == minimal.reward


@pytest.mark.parametrize("section", ["sandbox_fusion", "reward_model", "custom_reward_function"])
def test_an_old_section_set_to_null_is_off(minimal: Any, section: str) -> None:
    assert migrated(minimal, (section, None)).reward == minimal.reward


def test_a_sandbox_section_set_to_null_is_off_and_can_be_filled_from_the_old_place(minimal: Any) -> None:
    assert build_config(migrated(minimal, ("reward.sandbox_fusion", None))).reward.sandbox_fusion is None
    config = migrated(minimal, ("reward.sandbox_fusion", None), ("sandbox_fusion.url", "http://x"))
    assert build_config(config).reward.sandbox_fusion.url == "http://x"


def test_the_callers_configuration_is_left_alone(minimal: Any) -> None:
    before = copy.deepcopy(minimal)
    migrated(minimal, ("custom_reward_function.path", "f.py"))
    build_config(minimal)
    assert minimal == before


def test_building_moves_old_keys_too(minimal: Any) -> None:
    config = copy.deepcopy(minimal)
    config.custom_reward_function.path = "f.py"
    assert build_config(config).reward.custom_reward_function.path == "f.py"


def test_the_evaluations_root_section_is_its_reward_function(compose: Any) -> None:
    config = compose("evaluation", "verl.trainer.config", ["custom_reward_function.path=f.py"])
    function = build_eval_config(config).reward.custom_reward_function
    assert (function.path, function.name) == ("f.py", "compute_score")
