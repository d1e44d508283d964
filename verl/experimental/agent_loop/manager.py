# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Spreads prompts over agent workers: one group (asynchronous training) or a whole batch (validation)."""

import asyncio
import inspect
from dataclasses import dataclass
from typing import Any

import ray
from omegaconf import DictConfig
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl.config import build_config
from verl.errors import ConfigError, PeerLost
from verl.experimental.agent_loop.jobs import GroupJob, answers_to, jobs_of, refuse_teacher, without_tensors
from verl.experimental.agent_loop.trajectory import GroupMeta, Trajectory
from verl.experimental.agent_loop.utils import load_agent_loop_config
from verl.experimental.agent_loop.worker import AgentLoopWorker
from verl.protocol import DataProto
from verl.utils.ray_utils import auto_await
from verl.waits import bounded
from verl.workers.rollout.llm_server import LLMServerManager
from verl.workers.rollout.utils import gather_or_cancel

# Imports of torch and transformers in every worker at once, on few cores.
START_DEADLINE_S = 300.0
# Several turns of an hour each at most (the client's own bound); beyond that something hangs.
GROUP_DEADLINE_S = 4 * 3600.0
# Trajectories of one validation call: large enough to save round trips, small enough to share among workers.
CHUNK = 64
# Above any number of groups in flight: an async actor otherwise takes 1000 calls at a time.
MAX_CONCURRENCY = 16384


@dataclass
class _Worker:
    index: int
    handle: Any
    in_flight: int = 0
    """Trajectories under way"""

    @property
    def name(self) -> str:
        return f"agent worker {self.index}"


class AgentLoopManager:
    """The agent workers of one job.

    Build it with `create`, inside the event loop of the process that awaits the groups.
    """

    def __init__(
        self,
        config: Any,
        worker_group: Any = None,
        rollout_resource_pool: Any = None,
        teacher_model_manager: Any = None,
        reward_loop_worker_handles: Any = None,
    ) -> None:
        refuse_teacher(teacher_model_manager=teacher_model_manager)
        self.config = config
        self.rollout_config = config.actor_rollout_ref.rollout
        self.worker_group = worker_group
        self.rollout_resource_pool = rollout_resource_pool
        self.reward_loop_worker_handles = reward_loop_worker_handles
        self.servers: Any = None
        self.pad_token_id: int | None = None
        self.deadline_s = float(self.rollout_config.agent.get("group_deadline_s", None) or GROUP_DEADLINE_S)
        self._workers: list[_Worker] = []

    @classmethod
    @auto_await
    async def create(
        cls,
        config: Any,
        worker_group: Any = None,
        rollout_resource_pool: Any = None,
        reward_loop_worker_handles: Any = None,
        teacher_model_manager: Any = None,
        *,
        servers: Any = None,
        llm_client: Any = None,
        num_workers: int | None = None,
        trace_dir: str | None = None,
    ) -> "AgentLoopManager":
        """Start `rollout.agent.num_workers` workers, spread over the nodes.

        Give the `LLMServerManager` as `servers`, or a client as `llm_client`; without both, servers are started in the
        processes of `worker_group`, or on devices of their own. `servers` and `reward_loop_worker_handles` may be
        awaitables: then the workers start beside them. A server in the workers' processes needs no resource pool.
        """
        manager = cls(config, worker_group, rollout_resource_pool, teacher_model_manager, reward_loop_worker_handles)
        if servers is None and llm_client is None:
            # A recipe passes the configuration of its front door; servers read a typed one.
            typed = build_config(config, unknown="keep") if isinstance(config, DictConfig) else config
            servers = LLMServerManager.create(typed, worker_group=worker_group)
        await manager._start(servers, llm_client, num_workers, trace_dir)
        return manager

    async def _start(self, servers: Any, llm_client: Any, num_workers: int | None, trace_dir: str | None) -> None:
        agent = self.rollout_config.agent
        workers = _start_workers(self.config, num_workers or agent.num_workers, trace_dir)
        ready = (
            _answer(worker.ready.remote(), "the start", f"agent worker {index}", START_DEADLINE_S)
            for index, worker in enumerate(workers)
        )
        self.servers, handles, *facts = await gather_or_cancel(
            _value(servers), _value(self.reward_loop_worker_handles), *ready
        )
        client = llm_client or self.servers.client()
        await gather_or_cancel(
            *(
                _answer(
                    worker.connect.remote(client, handles), "a connection", f"agent worker {index}", START_DEADLINE_S
                )
                for index, worker in enumerate(workers)
            )
        )
        self.pad_token_id = facts[0]["pad_token_id"]
        self._workers = [_Worker(index, handle) for index, handle in enumerate(workers)]

    async def generate_group(
        self, row: dict[str, Any], *, uid: str, n: int, policy_version: int = -1, validate: bool = False
    ) -> tuple[GroupMeta, Any]:
        """`n` trajectories of a row: their meta data, and a reference to the payload (`list[Trajectory]`).

        The reference belongs to this process: it outlives the worker that made it.
        """
        worker = self._least_busy()
        worker.in_flight += n
        try:
            call = worker.handle.generate_group.options(num_returns=2)
            meta_ref, payload_ref = call.remote(without_tensors(row), uid, n, policy_version, validate)
            meta = await self._from(worker, meta_ref, f"the trajectories of {uid}")
        finally:
            worker.in_flight -= n
        return meta, payload_ref

    @auto_await
    async def generate_sequences(self, prompts: DataProto) -> DataProto:
        """A whole batch, rows in their order; consecutive rows with one uid are the trajectories of one prompt.

        `meta_info`: `validate` chooses `val_kwargs`, `do_sample=False` asks for greedy answers, `global_steps` is the
        policy version.
        """
        jobs = jobs_of(prompts)
        parts = await gather_or_cancel(*(self._run_chunk(chunk) for chunk in _chunks(jobs, len(self._workers))))
        if self.pad_token_id is None:
            raise ConfigError("the agent workers have not been started", remedy="build the manager by `create`")
        groups = [group for part in parts for group in part]
        return answers_to(prompts, groups, self.rollout_config, self.pad_token_id)

    @auto_await
    async def clear_kv_cache(self) -> None:
        """Forget what the servers keep of earlier prompts."""
        await gather_or_cancel(*(replica.clear_kv_cache() for replica in self._replicas()))

    @auto_await
    async def start_profile(self, **kwargs: Any) -> None:
        """Begin profiling on every server."""
        await gather_or_cancel(*(replica.start_profile(**kwargs) for replica in self._replicas()))

    @auto_await
    async def stop_profile(self) -> None:
        """End profiling on every server."""
        await gather_or_cancel(*(replica.stop_profile() for replica in self._replicas()))

    def _replicas(self) -> list[Any]:
        return [] if self.servers is None else list(self.servers.replicas)

    async def shutdown(self) -> None:
        """End the workers."""
        for worker in self._workers:
            ray.kill(worker.handle)
        self._workers = []

    async def _run_chunk(self, jobs: list[GroupJob]) -> list[list[Trajectory]]:
        worker = self._least_busy()
        count = sum(job.n for job in jobs)
        worker.in_flight += count
        try:
            return await self._from(worker, worker.handle.generate_groups.remote(jobs), f"{count} trajectories")
        finally:
            worker.in_flight -= count

    def _least_busy(self) -> _Worker:
        if not self._workers:
            raise PeerLost("no agent worker is left", remedy="see the errors of the workers above")
        return min(self._workers, key=lambda worker: worker.in_flight)

    async def _from(self, worker: _Worker, ref: Any, what: str) -> Any:
        try:
            return await _answer(ref, what, worker.name, self.deadline_s)
        except PeerLost as error:
            if isinstance(error.__cause__, RayActorError):
                self._workers = [other for other in self._workers if other is not worker]
            raise


def _start_workers(config: Any, count: int, trace_dir: str | None) -> list[Any]:
    entries = load_agent_loop_config(config.actor_rollout_ref.rollout.agent.get("agent_loop_config_path", None))
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    actor_cls = ray.remote(AgentLoopWorker)
    return [
        actor_cls.options(
            num_cpus=0,
            max_restarts=0,
            max_concurrency=MAX_CONCURRENCY,
            scheduling_strategy=NodeAffinitySchedulingStrategy(nodes[index % len(nodes)], soft=True),
        ).remote(config, agent_loops=entries, worker_index=index, trace_dir=trace_dir)
        for index in range(count)
    ]


async def _value(given: Any) -> Any:
    return await given if inspect.isawaitable(given) else given


async def _answer(ref: Any, what: str, whom: str, deadline_s: float) -> Any:
    try:
        return await bounded(ref, what=what, whom=whom, deadline_s=deadline_s)
    except RayActorError as error:
        raise PeerLost(f"{whom} has died while it owed {what} ({error})") from error
    except RayTaskError as error:
        raise error.cause from error
    except (asyncio.CancelledError, TimeoutError):
        # Nobody waits any more: the worker should not go on.
        ray.cancel(ref)
        raise


def _chunks(jobs: list[GroupJob], num_workers: int) -> list[list[GroupJob]]:
    """Consecutive jobs, at most CHUNK trajectories and at most an equal share of the workers."""
    total = sum(job.n for job in jobs)
    limit = max(1, min(CHUNK, -(-total // max(1, num_workers))))
    chunks: list[list[GroupJob]] = []
    size = limit
    for job in jobs:
        if size + job.n > limit:
            chunks.append([])
            size = 0
        chunks[-1].append(job)
        size += job.n
    return chunks
