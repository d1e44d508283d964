# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From roles to worker groups: which role runs in which pool, built once, in every trainer the same way."""

import asyncio
import dataclasses
from collections import defaultdict
from typing import Any

import ray

from verl.config.node import with_extras
from verl.single_controller.ray import (
    RayClassWithInitArgs,
    RayWorkerGroup,
    ResourcePoolManager,
    create_colocated_worker_cls,
)
from verl.trainer.ppo.utils import Role
from verl.waits import bounded

# Loading a 70B model from a cold network disk takes minutes; a rank that is silent for longer than this is stuck.
INIT_DEADLINE_S = 1800.0


def replace_at(config: Any, path: str, value: Any) -> Any:
    """A copy of a frozen config with the field at a dotted path replaced."""
    head, _, rest = path.partition(".")
    new = replace_at(getattr(config, head), rest, value) if rest else value
    return with_extras(dataclasses.replace(config, **{head: new}), config.__dict__.get("_extras", {}))


def with_total_steps(config: Any, total_steps: int) -> Any:
    """Give optimizers the length of the run, where the user gave none."""
    for path in ("actor_rollout_ref.actor.optim", "critic.optim"):
        node = config
        for part in path.split("."):
            node = getattr(node, part)
        if node.total_training_steps in (None, -1):
            config = replace_at(config, f"{path}.total_training_steps", total_steps)
    return config


async def build_worker_groups(
    config: Any,
    role_workers: dict[Role, type],
    pools: ResourcePoolManager,
    worker_group_cls: type[RayWorkerGroup] = RayWorkerGroup,
) -> dict[Role, RayWorkerGroup]:
    """Start all roles; roles of one pool share their processes. Models are loaded when this returns."""
    await asyncio.to_thread(pools.create_resource_pool)
    by_pool: dict[Any, dict[str, RayClassWithInitArgs]] = defaultdict(dict)
    for role, worker_cls in role_workers.items():
        pool = pools.get_resource_pool(role)
        by_pool[pool][str(role)] = _with_arguments(config, role, worker_cls)
    groups: dict[str, RayWorkerGroup] = {}
    for pool, class_dict in by_pool.items():
        group = await asyncio.to_thread(_start, worker_group_cls, pool, class_dict)
        groups |= group.spawn(prefix_set=set(class_dict))
    for role in role_workers:
        # One after another: two models that load at once need twice the host memory.
        await groups[str(role)].call_async(_init_method(role), deadline_s=INIT_DEADLINE_S)
    return {role: groups[str(role)] for role in role_workers}


def _start(worker_group_cls: Any, pool: Any, class_dict: dict[str, RayClassWithInitArgs]) -> RayWorkerGroup:
    return worker_group_cls(resource_pool=pool, ray_cls_with_init=create_colocated_worker_cls(class_dict))


def _with_arguments(config: Any, role: Role, worker_cls: type) -> RayClassWithInitArgs:
    # Recipes write `ray.remote(Worker)` into their role tables, ours are plain classes.
    actor_cls = worker_cls if isinstance(worker_cls, ray.actor.ActorClass) else ray.remote(worker_cls)
    if role is Role.Critic:
        return RayClassWithInitArgs(actor_cls, config=config.critic)
    return RayClassWithInitArgs(actor_cls, config=config.actor_rollout_ref, role=str(role))


def _init_method(role: Role) -> str:
    return "reset" if role is Role.Critic else "init_model"


async def ask(ref: Any, what: str, whom: str, deadline_s: float) -> Any:
    """Await a remote answer with a deadline that names the peer."""
    return await bounded(ref, what=what, whom=whom, deadline_s=deadline_s)
