# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""YAML and dataclasses agree on every default, so that code and command line mean the same."""

import copy
from dataclasses import fields, is_dataclass
from typing import Any

from omegaconf import OmegaConf

from verl.config import RunConfig, build_config, build_sft_config, validate
from verl.config.sft import SFTRunConfig

# Defaults that differ on purpose: a role gives its section another start than the section has alone.
INTENDED = {
    "actor_rollout_ref.actor.optim.lr": "the policy learns slower than the optimizer's own default",
    "critic.optim.lr": "the critic too",
    "actor_rollout_ref.rollout.trace.project_name": "follows trainer.project_name",
    "actor_rollout_ref.rollout.trace.experiment_name": "follows trainer.experiment_name",
    "actor_rollout_ref.rollout.prometheus.served_model_name": "follows the model's path",
    "actor_rollout_ref.rollout.profiler": "null where a rollout is built in code",
    "actor_rollout_ref.rollout.mtp": "null where a rollout is built in code",
    "actor_rollout_ref.rollout.qat": "null where a rollout is built in code",
    "actor_rollout_ref.rollout.engine_kwargs": "the YAML has a section per upstream engine",
    "actor_rollout_ref.model.lora": "the YAML carries the options of Megatron's adapters",
    "critic.model.lora": "the YAML carries the options of Megatron's adapters",
    "model.lora": "the YAML carries the options of Megatron's adapters",
    "reward.reward_model.rollout": "a reward model's servers have sizes of their own",
    "distillation.teacher_models": "left out",
    "transfer_queue.backend": "left out",
    "global_profiler.global_tool_config": "the YAML carries Nsight's options",
    "raw": "the tree itself",
    "profiler.tool": "the supervised trainer's profiler is torch's",
    "profiler.tool_config.nsys.discrete": "follows a global profiler",
}


def differences(made: Any, default: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for item in fields(made):
        here = f"{path}.{item.name}" if path else item.name
        # What is not compared is worked out from other fields, or shows another section.
        if here in INTENDED or not item.compare:
            continue
        ours, alone = getattr(made, item.name), getattr(default, item.name)
        if is_dataclass(ours) and is_dataclass(alone):
            found |= differences(ours, alone, here)
        elif ours != alone:
            found[here] = (ours, alone)
    return found


def test_every_default_of_a_run_is_the_same_in_yaml_and_code(compose: Any) -> None:
    assert differences(build_config(compose("ppo_trainer", "verl.trainer.config")), RunConfig()) == {}


def test_every_default_of_a_supervised_run_is_the_same_in_yaml_and_code(compose: Any) -> None:
    assert differences(build_sft_config(compose("sft_trainer_engine", "verl.trainer.config")), SFTRunConfig()) == {}


def test_a_struct_and_read_only_configuration_is_enough(minimal: Any) -> None:
    frozen = copy.deepcopy(minimal)
    OmegaConf.set_struct(frozen, True)
    OmegaConf.set_readonly(frozen, True)
    validate(build_config(frozen))


def test_raw_is_the_resolved_tree(minimal: Any) -> None:
    config = build_config(minimal)
    assert config.raw["actor_rollout_ref"]["actor"]["rollout_n"] == 8
    assert config.raw["data"]["train_batch_size"] == 0
