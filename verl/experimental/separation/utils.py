# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Roles and pools when training and rollout live on separate devices."""

from typing import Any

from verl.config.async_training import device_share
from verl.single_controller.ray import ResourcePoolManager
from verl.trainer.ppo.utils import Role, need_critic, need_reference_policy
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

TRAINER_POOL = "trainer_pool"


def create_role_worker_mapping(config: Any) -> dict[Role, type]:
    """Which worker class plays each role of the trainer; servers make pools and workers of their own."""
    mapping: dict[Role, type] = {Role.Actor: ActorRolloutRefWorker}
    if need_critic(config):
        mapping[Role.Critic] = TrainingWorker
    if need_reference_policy(config):
        mapping[Role.RefPolicy] = ActorRolloutRefWorker
    return mapping


def trainer_slots(config: Any) -> list[int]:
    """Ranks of the trainer on each of its nodes."""
    return [config.trainer.n_gpus_per_node] * config.trainer.nnodes


def create_resource_pool_manager(config: Any, roles: list[Role]) -> ResourcePoolManager:
    """One pool for all roles of the trainer: `trainer.n_gpus_per_node` processes on each of `trainer.nnodes` nodes."""
    return ResourcePoolManager(
        resource_pool_spec={TRAINER_POOL: trainer_slots(config)},
        mapping={role: TRAINER_POOL for role in roles},
        device_share=device_share(config),
    )
