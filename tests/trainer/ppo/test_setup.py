# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From a role table, as recipes write it, to worker groups that answer."""

import asyncio
from pathlib import Path

import ray
import torch

from verl.config import build_config
from verl.config.front_door import load
from verl.protocol import DataProto
from verl.single_controller.ray import ResourcePoolManager
from verl.trainer.ppo.setup import build_worker_groups, with_total_steps
from verl.trainer.ppo.utils import Role
from verl.workers.engine_workers import TrainingWorker
from verl.workers.fsdp_workers import AsyncActorRolloutRefWorker, CriticWorker


def batch() -> DataProto:
    ids = torch.randint(2, 14, (2, 8), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    tensors = {"prompts": ids[:, :4], "responses": ids[:, 4:], "input_ids": ids, "attention_mask": mask}
    return DataProto.from_dict(
        tensors | {"position_ids": mask.cumsum(-1) - 1, "response_mask": mask[:, 4:]}, meta_info={"temperature": 1.0}
    )


def test_actor_classes_and_plain_classes_may_stand_in_the_role_table(
    ray_cluster: None, tiny_model_dir: Path, tmp_path: Path
) -> None:
    config, _ = load(
        [
            f"actor_rollout_ref.model.path={tiny_model_dir}",
            f"critic.model.path={tiny_model_dir}",
            f"trainer.default_local_dir={tmp_path}",
            "actor_rollout_ref.rollout.name=hf",
            "actor_rollout_ref.rollout.checkpoint_engine.backend=naive",
        ],
        "verl.trainer.config",
        "ppo_trainer",
    )
    roles = {Role.RefPolicy: AsyncActorRolloutRefWorker, Role.Critic: ray.remote(CriticWorker)}
    pools = ResourcePoolManager(resource_pool_spec={"pool": [1]}, mapping=dict.fromkeys(roles, "pool"), use_gpu=False)
    groups = asyncio.run(build_worker_groups(config, roles, pools))
    assert groups[Role.RefPolicy].compute_ref_log_prob(batch()).batch["ref_log_prob"].shape == (2, 4)
    values = groups[Role.Critic].compute_values(batch()).batch["values"]
    assert torch.equal(values, groups[Role.Critic].infer_batch(batch()).batch["values"])
    assert issubclass(CriticWorker, TrainingWorker)
    for group in groups.values():
        for worker in group.workers:
            ray.kill(worker)


def test_filling_in_the_number_of_steps_keeps_the_keys_that_a_recipe_added() -> None:
    config = build_config({"mine": 1, "actor_rollout_ref": {"actor": {"mine": 2, "optim": {"mine": 3}}}}, "keep")
    filled = with_total_steps(config, 7)
    actor = filled.actor_rollout_ref.actor
    assert actor.optim.total_training_steps == filled.critic.optim.total_training_steps == 7
    assert (filled.mine, actor.mine, actor.optim.mine) == (1, 2, 3)
