# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The replicas of a job, the balancer between them, and clients for both."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import ray

from verl.errors import ConfigError
from verl.single_controller.ray import capacity
from verl.utils.import_utils import load_extern_object
from verl.workers.rollout.llm_client import GENERATE_DEADLINE_S, LLMServerClient, resumes_partial_rollouts
from verl.workers.rollout.load_balancer import GlobalRequestLoadBalancer
from verl.workers.rollout.replica import RolloutReplica, get_rollout_replica_class, rollout_world_size
from verl.workers.rollout.server import RolloutServer
from verl.workers.rollout.utils import gather_or_cancel

__all__ = ["FullyAsyncLLMServerClient", "GlobalRequestLoadBalancer", "LLMServerClient", "LLMServerManager"]

# On a CPU a rank of a replica is at least a server and an engine, or a server and a worker that takes weights for it.
CPU_PROCESSES_PER_RANK = 2

# Upstream's later name for the client that continues interrupted answers; here it is a switch of the one class.
FullyAsyncLLMServerClient = LLMServerClient


class LLMServerManager:
    """The replicas of one job, and clients for them."""

    def __init__(self, config: Any, replicas: Sequence[RolloutReplica]) -> None:
        self.config = config
        self.replicas = list(replicas)
        self.rollout_config = config.actor_rollout_ref.rollout
        ids = [replica.server_id for replica in self.replicas]
        # With one server there is nothing to balance: each client keeps its own count and saves a round trip.
        self.load_balancer: Any = (
            ray.remote(GlobalRequestLoadBalancer).options(num_cpus=0, max_restarts=0).remote(ids)
            if len(ids) > 1
            else GlobalRequestLoadBalancer(ids)
        )

    @classmethod
    async def create(
        cls,
        config: Any,
        *,
        worker_group: Any | None = None,
        num_replicas: int | None = None,
        worker_cls: type | None = None,
        replica_rank_offset: int = 0,
        beside: Sequence[int] = (),
        **replica_kwargs: Any,
    ) -> "LLMServerManager":
        """Start all replicas at once: in the training workers of `worker_group`, else on devices of their own.

        `num_replicas` defaults to what the pool (`rollout.nnodes`, `rollout.n_gpus_per_node`) or the group holds.
        `beside`: ranks on each node of the job's other pools. What an empty cluster could not hold together with them
        is refused before any replica starts.
        """
        rollout = config.actor_rollout_ref.rollout
        gpus_per_node, world_size = pool_of(config, worker_group)
        count = num_replicas or replica_count(world_size, rollout_world_size(rollout))
        replica_cls = replica_class(rollout)
        replicas = [
            replica_cls(
                replica_rank=replica_rank_offset + rank,
                config=rollout,
                model_config=config.actor_rollout_ref.model,
                gpus_per_node=gpus_per_node,
                worker_cls=worker_cls,
                log_dir=_log_dir(config),
                **replica_kwargs,
            )
            for rank in range(count)
        ]
        if worker_group is None:
            await asyncio.to_thread(_refuse_impossible, replicas, beside)
        starts = [
            replica.init_standalone() if worker_group is None else replica.init_hybrid(worker_group)
            for replica in replicas
        ]
        await gather_or_cancel(*starts)
        return cls(config, replicas)

    def client(
        self, *, partial_rollout: bool | None = None, deadline_s: float = GENERATE_DEADLINE_S
    ) -> LLMServerClient:
        """A client for one process; `partial_rollout` defaults to `async_training.partial_rollout`, else on."""
        if partial_rollout is None:
            partial_rollout = resumes_partial_rollouts(self.config)
        servers = {replica.server_id: replica.server_handle for replica in self.replicas}
        return LLMServerClient(
            self.rollout_config,
            servers,
            self.load_balancer,
            partial_rollout=partial_rollout,
            deadline_s=deadline_s,
        )

    @property
    def server_addresses(self) -> list[str]:
        return [replica.server_address for replica in self.replicas]

    async def on_all(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call one method of every replica at once."""
        calls: list[Callable[..., Any]] = [getattr(replica, method) for replica in self.replicas]
        return await gather_or_cancel(*(call(*args, **kwargs) for call in calls))

    async def clear_kv_cache(self) -> None:
        await self.on_all("clear_kv_cache")

    async def start_profile(self, **kwargs: Any) -> None:
        await self.on_all("start_profile", **kwargs)

    async def stop_profile(self) -> None:
        await self.on_all("stop_profile")

    async def shutdown(self) -> None:
        """Stop every server and what belongs to it."""
        await self.on_all("shutdown")


def replica_class(rollout: Any) -> type[RolloutReplica]:
    """The replica of `rollout.name`, or with `agent.custom_async_server` a replica or a server class of the user's."""
    registered = get_rollout_replica_class(rollout.name)
    custom = (rollout.get("agent") or {}).get("custom_async_server") or {}
    path, name = custom.get("path"), custom.get("name")
    if not path:
        return registered
    cls = load_extern_object(str(path), str(name))
    # The file is not importable by name in the actor, so the class itself must travel.
    ray.cloudpickle.register_pickle_by_value(sys.modules[cls.__module__])
    if issubclass(cls, RolloutReplica):
        return cls
    if issubclass(cls, RolloutServer):
        return type(f"{cls.__name__}Replica", (registered,), {"server_class": cls})
    raise ConfigError(
        "not a server class",
        where="actor_rollout_ref.rollout.agent.custom_async_server",
        got=cls,
        expected="a subclass of RolloutServer (vLLMHttpServer) or RolloutReplica (vLLMReplica)",
    )


def pool_of(config: Any, worker_group: Any | None) -> tuple[int, int]:
    """`(devices per node, devices in all)` of the rollout."""
    if worker_group is not None:
        return int(config.trainer.n_gpus_per_node), int(worker_group.world_size)
    pool = config.get("rollout") or {}
    if not pool.get("nnodes"):
        pool = config.actor_rollout_ref.rollout
    per_node = int(pool.get("n_gpus_per_node") or 1)
    return per_node, per_node * int(pool.get("nnodes") or 1)


def replica_count(world_size: int, per_replica: int) -> int:
    """How many replicas of `per_replica` devices fit `world_size` devices; they must fit without rest."""
    count, rest = divmod(world_size, per_replica)
    if rest or not count:
        raise ConfigError(
            "the rollout devices cannot be divided among replicas",
            where="rollout.n_gpus_per_node x rollout.nnodes",
            got=world_size,
            expected=f"a multiple of {per_replica} (tensor x pipeline x data parallel size)",
            remedy="change the pool or actor_rollout_ref.rollout.tensor_model_parallel_size",
        )
    return count


def _refuse_impossible(replicas: Sequence[RolloutReplica], beside: Sequence[int]) -> None:
    first = replicas[0]
    on_device = first.rollout_worker_use_gpu()
    resource = capacity.device_resource(None) if on_device else None
    ranks = first.gpus_per_replica_node * (1 if on_device else CPU_PROCESSES_PER_RANK)
    own = [ranks] * first.nnodes * len(replicas)
    who = f"{len(replicas)} rollout replicas (rollout.nnodes x rollout.n_gpus_per_node)"
    capacity.refuse_impossible([*beside, *own], resource, None, who, first.device_share)


def _log_dir(config: Any) -> str | None:
    directory = config.trainer.get("default_local_dir")
    return f"{directory}/logs" if directory else None
