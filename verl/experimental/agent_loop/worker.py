# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The actor that runs agent loops: many trajectories on one event loop, each sent to its reward as it ends."""

import os
import time
from collections.abc import Sequence
from typing import Any

import hydra
import xxhash

import verl.experimental.agent_loop.single_turn_agent_loop
import verl.experimental.agent_loop.tool_agent_loop  # noqa: F401  both register themselves
from verl.experimental.agent_loop.agent_loop import AGENT_LOOPS, AgentLoopBase, DictConfigWrap
from verl.experimental.agent_loop.coalesce import Coalescer, GroupClient
from verl.experimental.agent_loop.convert import to_trajectory
from verl.experimental.agent_loop.jobs import GroupJob, answers_to, jobs_of, refuse_teacher, reproducible_seed
from verl.experimental.agent_loop.scoring import RewardClient, drop_group, drop_reason
from verl.experimental.agent_loop.trajectory import GroupMeta, Trajectory, describe_group
from verl.experimental.agent_loop.utils import load_agent_loop_config
from verl.protocol import DataProto
from verl.utils.dataset.rl_dataset import get_dataset_class
from verl.utils.import_utils import import_external_libs, load_class_from_fqn
from verl.utils.tokenizer import load_tokenizer_and_processor
from verl.utils.trace import set_up_trace, span
from verl.workers.rollout.llm_client import AsyncLLMServerManager, resumes_partial_rollouts
from verl.workers.rollout.sampling import sampling_params
from verl.workers.rollout.utils import gather_or_cancel


class AgentLoopWorker:
    """Runs the loops of the groups it is sent. Used as an async Ray actor (see `AgentLoopManager`).

    `servers`: (id, handle) of each, and `load_balancer_handle` an actor of `GlobalRequestLoadBalancer` over these ids;
    or a client of theirs, here as `llm_client` or later by `connect`. `agent_loops`: what the file at
    `rollout.agent.agent_loop_config_path` lists, where it has been read already.
    """

    def __init__(
        self,
        config: Any,
        servers: Sequence[tuple[str, Any]] | None = None,
        load_balancer_handle: Any = None,
        teacher_servers: Any = None,
        teacher_load_balancer_handle: Any = None,
        reward_loop_worker_handles: Sequence[Any] | None = None,
        *,
        llm_client: Any = None,
        agent_loops: Sequence[dict[str, Any]] | None = None,
        worker_index: int = 0,
        trace_dir: str | None = None,
    ) -> None:
        refuse_teacher(teacher_servers=teacher_servers, teacher_load_balancer_handle=teacher_load_balancer_handle)
        if trace_dir:
            set_up_trace(trace_dir, f"agent-loop-{worker_index}")
        self.config = config
        self.rollout_config = config.actor_rollout_ref.rollout
        # Worked out once: a group of short answers would spend more on reading the configuration than on its tokens.
        self.sampling_params = {validate: sampling_params(self.rollout_config, validate) for validate in (False, True)}
        self.seed = reproducible_seed(config)
        model = config.actor_rollout_ref.model
        import_external_libs(model.get("external_lib", None))
        self.tokenizer, self.processor = load_tokenizer_and_processor(model)
        self.dataset_cls = get_dataset_class(config.data)
        if agent_loops is None:
            agent_loops = load_agent_loop_config(self.rollout_config.agent.get("agent_loop_config_path", None))
        self.agent_loops = {entry["name"]: _configured_loop(entry) for entry in agent_loops}
        self.default_agent_loop = self.rollout_config.agent.default_agent_loop
        if self.rollout_config.multi_turn.enable and self.default_agent_loop == "single_turn_agent":
            self.default_agent_loop = "tool_agent"
        self.on_error = config.reward.get("on_error", "drop_sample")
        self.banned = banned_tokens(self.processor)
        if servers is not None:
            llm_client = AsyncLLMServerManager(
                config, servers, load_balancer_handle, partial_rollout=resumes_partial_rollouts(config)
            )
        self._use(llm_client, reward_loop_worker_handles)

    async def ready(self) -> dict[str, int]:
        """Answers when the worker is constructed, with what the manager needs to know of it."""
        return {"pid": os.getpid(), "pad_token_id": self.tokenizer.pad_token_id}

    async def connect(self, llm_client: Any, reward_loop_worker_handles: Sequence[Any] | None = None) -> None:
        """Name the servers and reward workers; apart from the constructor, so that both start side by side."""
        self._use(llm_client, reward_loop_worker_handles)

    def _use(self, llm_client: Any, reward_loop_worker_handles: Sequence[Any] | None) -> None:
        self.llm_client = llm_client
        handles = reward_loop_worker_handles or []
        self.rewards = RewardClient(handles, self.tokenizer) if handles else None

    async def generate_group(
        self, row: dict[str, Any], uid: str, n: int, policy_version: int = -1, validate: bool = False
    ) -> tuple[GroupMeta, list[Trajectory]]:
        """`n` trajectories of one prompt; to be called with `num_returns=2`, so that the caller owns the payload."""
        trajectories = await self._run_group(GroupJob(row, uid, n, policy_version, validate))
        trajectories, dropped = self._without_unscored(trajectories)
        return describe_group(uid, trajectories, dropped), trajectories

    async def generate_sequences(self, batch: DataProto) -> DataProto:
        """A whole batch, rows in their order; consecutive rows with one uid are the trajectories of one prompt."""
        groups = await self.generate_groups(jobs_of(batch))
        return answers_to(batch, groups, self.rollout_config, self.tokenizer.pad_token_id)

    async def generate_groups(self, jobs: Sequence[GroupJob]) -> list[list[Trajectory]]:
        """Several groups at once; all their requests of one moment are one call to a server.

        In validation a trajectory that could not be scored costs its siblings nothing: they are not trained on.
        """
        client = GroupClient(self.llm_client)
        try:
            groups = await gather_or_cancel(*(self._run_group(job, client) for job in jobs))
        finally:
            await client.close()
        pairs = zip(jobs, groups, strict=True)
        return [group if job.validate else self._without_unscored(group)[0] for job, group in pairs]

    def _without_unscored(self, trajectories: list[Trajectory]) -> tuple[list[Trajectory], str | None]:
        """The group as `reward.on_error` leaves it, and why it is dropped if it is."""
        dropped = drop_reason(trajectories, self.on_error)
        return (drop_group(trajectories, dropped) if dropped else trajectories), dropped

    async def _run_group(self, job: GroupJob, shared_client: GroupClient | None = None) -> list[Trajectory]:
        client = shared_client or GroupClient(self.llm_client)
        calls = self.rewards.for_group() if self.rewards else None
        cache: dict[str, list[int]] = {}
        try:
            with span("generate_group", uid=job.uid, n=job.n, validate=job.validate):
                return await gather_or_cancel(
                    *(self._run_trajectory(job, repetition, client, calls, cache) for repetition in range(job.n))
                )
        finally:
            if shared_client is None:
                await client.close()
            if calls is not None:
                await calls.close()

    async def _run_trajectory(
        self,
        job: GroupJob,
        repetition: int,
        client: GroupClient,
        calls: Coalescer[dict[str, Any], dict[str, Any]] | None,
        cache: dict[str, list[int]],
    ) -> Trajectory:
        loop = self._new_loop(job.row.get("agent_name") or self.default_agent_loop, client)
        loop.prompt_cache = cache
        started_s = time.monotonic()
        output = await loop.run(self._params(job, repetition), **job.row)
        if not output.metrics.generate_sequences:
            # A loop of a recipe that does not measure itself.
            output.metrics.generate_sequences = time.monotonic() - started_s
        trajectory = to_trajectory(
            output,
            uid=job.uid,
            row=job.row,
            policy_version=job.policy_version,
            prompt_length=int(self.rollout_config.prompt_length),
            response_length=int(self.rollout_config.response_length),
        )
        if self.rewards is None or calls is None or trajectory.reward_score is not None or trajectory.aborted:
            return trajectory
        return await self.rewards.score(trajectory, calls)

    def _params(self, job: GroupJob, repetition: int) -> dict[str, Any]:
        """Sampling parameters of one trajectory, its own to change."""
        params = dict(self.sampling_params[job.validate])
        if job.greedy:
            params["temperature"] = 0.0
        if self.seed is not None:
            params["seed"] = trajectory_seed(self.seed, job.uid, repetition)
        if self.banned:
            params["logit_bias"] = dict.fromkeys(self.banned, -100.0) | (params.get("logit_bias") or {})
        return params

    def _new_loop(self, name: str, client: GroupClient) -> AgentLoopBase:
        parts: dict[str, Any] = {
            "trainer_config": DictConfigWrap(self.config),
            "server_manager": client,
            "tokenizer": self.tokenizer,
            "processor": self.processor,
            "dataset_cls": self.dataset_cls,
            "data_config": DictConfigWrap(self.config.data),
        }
        if name in self.agent_loops:
            cls, arguments = self.agent_loops[name]
            return cls(**parts, **arguments)
        return AGENT_LOOPS.get(name)(**parts)


def _configured_loop(entry: dict[str, Any]) -> tuple[type[AgentLoopBase], dict[str, Any]]:
    """Class and constructor arguments of an entry of the agent loop configuration."""
    arguments = {key: value for key, value in entry.items() if key not in ("name", "_target_")}
    built = hydra.utils.instantiate(arguments, _convert_="all") if arguments else {}
    return load_class_from_fqn(entry["_target_"], f"agent loop {entry['name']}"), built


def trajectory_seed(seed: int, uid: str, repetition: int) -> int:
    """Seed of one trajectory: a replayed uid repeats it, the siblings of a group differ."""
    return xxhash.xxh3_64_intdigest(f"{seed}:{uid}:{repetition}".encode()) & (2**63 - 1)


def banned_tokens(processor: Any) -> tuple[int, ...]:
    """Tokens that a vision model must not write: each stands for a picture that would not be there."""
    names = ("image_token_id", "video_token_id")
    return tuple(token for name in names if isinstance(token := getattr(processor, name, None), int))
