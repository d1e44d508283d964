# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What every rollout server does, whatever engine is behind it: admission, limits, pause, weights, health."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from verl.errors import ConfigError, PeerLost, TransportError, UnsupportedError
from verl.launch_info import REPLICA_RANK_ENV, LaunchInfo
from verl.platform import current_platform
from verl.waits import bounded
from verl.workers.rollout.health_app import ASGI, health_app
from verl.workers.rollout.sampling import token_budget, wants_log_probs
from verl.workers.rollout.schemas import RolloutMode, TokenOutput
from verl.workers.rollout.served_weights import ServedWeights
from verl.workers.rollout.utils import gather_or_cancel, redirect_output, run_uvicorn, tail

# One answer, the wait for an update included; the client's own deadline is usually the shorter.
GENERATE_DEADLINE_S = 3600.0
# A message per answer would cost more than the answers; a finished one may wait this long for its siblings.
STREAM_WINDOW_S = 0.003


class RolloutServer(ABC):
    """Base of the servers; a replica makes one a Ray actor.

    Weights: `begin_weight_update` lets the workers receive while generation goes on; between `abort_all_requests` and
    `resume_generation`, `apply_weight_update` puts them in (see `ServedWeights`).
    Requests that come while the server is paused, drained or asleep wait here and never reach the engine.
    """

    max_model_len: int
    """Longest prompt + response of the engine, tokens; known after the launch."""

    def __init__(
        self,
        config: Any,
        model_config: Any,
        rollout_mode: RolloutMode = RolloutMode.STANDALONE,
        workers: list[Any] | None = None,
        replica_rank: int = 0,
        node_rank: int = 0,
        gpus_per_node: int = 1,
        nnodes: int = 1,
        cuda_visible_devices: str = "",
        *,
        address: str = "127.0.0.1",
        log_file: str | None = None,
    ) -> None:
        if log_file is not None:
            redirect_output(log_file)
        if (node_rank, nnodes) != (0, 1):
            raise UnsupportedError(
                "one server over several nodes is not part of this package",
                where="nnodes",
                got=f"node {node_rank} of {nnodes}",
                remedy="make tensor x pipeline parallel size fit one node, and use more replicas",
            )
        self.config = config
        self.model_config = model_config
        self.rollout_mode = rollout_mode
        self.workers = list(workers or [])
        self.replica_rank = replica_rank
        self.name = f"rollout server {replica_rank}"
        self._address = address
        self._log_file = log_file
        self._port: int | None = None
        self._http: asyncio.Task[None] | None = None
        self._weights = ServedWeights(self.name, self.collective_rpc, self._activate)
        self._closed_by: set[str] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._in_flight: Counter[str] = Counter()
        platform = current_platform()
        self._on_cpu = platform.device_type == "cpu"
        os.environ[REPLICA_RANK_ENV] = str(replica_rank)
        if cuda_visible_devices:
            platform.show_only(cuda_visible_devices)

    # The engine, by the subclass

    @abstractmethod
    async def _start_engine(self) -> None:
        """Load the model and set `max_model_len`."""

    @abstractmethod
    async def _stop_engine(self) -> None:
        """End what was started."""

    @abstractmethod
    async def _engine_pids(self) -> list[int]:
        """Processes of the engine beside this one; raises PeerLost where one is dead."""

    @abstractmethod
    async def _answer(
        self, request_id: str, prompt_ids: list[int], params: dict[str, Any], budget: int, *args: Any, **media: Any
    ) -> TokenOutput:
        """At most `budget` tokens after the prompt."""

    @abstractmethod
    async def _abort_in_flight(self, reset_prefix_cache: bool) -> None:
        """End every request with what it has; returns when the engine computes nothing."""

    @abstractmethod
    async def _go_on(self) -> None:
        """Compute again."""

    @abstractmethod
    async def _abort_one(self, request_id: str) -> None:
        """End one request with what it has."""

    @abstractmethod
    async def clear_kv_cache(self) -> None:
        """Forget cached prefixes: they were computed by other weights."""

    @abstractmethod
    async def _stamp(self, version: int) -> None:
        """Tokens from now on are of this policy version."""

    @abstractmethod
    async def _give_memory(self) -> None:
        """Release device memory, nothing being in flight."""

    @abstractmethod
    async def _take_memory(self, tags: list[str]) -> None:
        """Take device memory back."""

    @abstractmethod
    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method of every worker that holds weights; one result per worker."""

    # Life

    async def launch_server(
        self, master_address: str | None = None, master_port: int | None = None, dp_rpc_port: int | None = None
    ) -> None:
        """Start the engine and the HTTP endpoint."""
        LaunchInfo.from_env().ensure_run_dir()
        await self._start_engine()
        await self._stamp(self._weights.version)
        self._port, self._http = await run_uvicorn(self._http_app(), None, self._address)

    def _http_app(self) -> ASGI:
        return health_app(self.health)

    async def shutdown(self) -> None:
        """Stop the endpoint and the engine."""
        if self._http is not None:
            self._http.cancel()
        await self._stop_engine()

    def get_server_address(self) -> tuple[str, int]:
        """Host and real port of the HTTP endpoint."""
        if self._port is None:
            raise ConfigError(f"{self.name} has not been launched", remedy="call launch_server first")
        return self._address, self._port

    async def health(self) -> dict[str, Any]:
        """Facts of a server that can answer; raises PeerLost, with the name of the dead process, otherwise."""
        if self._http is not None and self._http.done():
            raise PeerLost(f"the HTTP listener of {self.name} (pid {os.getpid()}) has ended")
        engine_pids = await self._engine_pids()
        return {
            "status": "stale" if self._weights.stale else "ok" if self._open.is_set() else "paused",
            "replica_rank": self.replica_rank,
            "pid": os.getpid(),
            "engine_pids": engine_pids,
            "version": self._weights.version,
            "in_flight": self._in_flight.total(),
        }

    # Generation

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: list[Any] | None = None,
        video_data: list[Any] | None = None,
        priority: int = 0,
    ) -> TokenOutput:
        """Continue `prompt_ids`; a paused server answers after it has resumed.

        Raises DataError for a prompt that is longer than the engine takes, StaleWeights after a failed update, and
        PeerLost when the engine is dead.
        """
        self._weights.refuse_if_stale("generate")
        budget = token_budget(len(prompt_ids), sampling_params, self.config, self.max_model_len, whom=self.name)
        if budget == 0:
            fields = {"global_steps": self._weights.version, "finish_reason": "length"}
            log_probs: list[float] | None = [] if wants_log_probs(sampling_params) else None
            return TokenOutput([], log_probs, stop_reason="completed", extra_fields=fields)
        media = {"image_data": image_data, "video_data": video_data, "priority": priority}
        async with self._admitted(request_id):
            return await self._answer(request_id, prompt_ids, sampling_params, budget, **media)

    async def generate_many(self, requests: list[dict[str, Any]]) -> list[TokenOutput]:
        """Answers to several requests, each a dict of `generate`'s arguments, in one call."""
        return await gather_or_cancel(*(self.generate(**request) for request in requests))

    async def generate_stream(self, requests: list[dict[str, Any]]) -> AsyncIterator[list[tuple[int, TokenOutput]]]:
        """As `generate_many`, but each answer goes out when it is done; those of one moment go together."""
        tasks = {asyncio.create_task(self.generate(**request)): index for index, request in enumerate(requests)}
        pending = set(tasks)
        try:
            while pending:
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(STREAM_WINDOW_S)
                done = {task for task in pending if task.done()}
                pending -= done
                yield [(tasks[task], task.result()) for task in done]
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    @asynccontextmanager
    async def _admitted(self, request_id: str) -> AsyncIterator[None]:
        """Wait while the server is closed; inside the block the request counts as in flight."""
        # A loop: between the end of one pause and this coroutine's turn, the next pause may have begun.
        while not self._open.is_set():
            await bounded(
                self._open.wait(), what="the end of the pause", whom=self.name, deadline_s=GENERATE_DEADLINE_S
            )
        # The same id can come twice: sent again by a caller whose first call has been cancelled a moment ago.
        self._in_flight[request_id] += 1
        try:
            yield
        finally:
            self._in_flight[request_id] -= 1
            if not self._in_flight[request_id]:
                del self._in_flight[request_id]

    # Admission

    def _close(self, reason: str) -> None:
        self._closed_by.add(reason)
        self._open.clear()

    def _reopen(self, reason: str) -> None:
        self._closed_by.discard(reason)
        if not self._closed_by:
            self._open.set()

    @property
    def _paused(self) -> bool:
        return "pause" in self._closed_by

    # Control

    async def abort_all_requests(self, reset_prefix_cache: bool = True) -> dict[str, Any]:
        """Pause: requests in flight come back with the tokens they have, later ones wait for `resume_generation`."""
        self._close("pause")
        aborted = sorted(self._in_flight)
        await self._abort_in_flight(reset_prefix_cache)
        return {"aborted_count": len(aborted), "request_ids": aborted}

    async def resume_generation(self) -> None:
        """End the pause; refused while the weights are stale."""
        self._weights.refuse_if_stale("resume")
        await self._go_on()
        self._reopen("pause")

    async def abort_request(self, request_id: str, reset_prefix_cache: bool = True) -> dict[str, Any]:
        """Abort one request; its caller gets the tokens it has."""
        known = request_id in self._in_flight
        if known:
            await self._abort_one(request_id)
        return {"aborted": known, "request_id": request_id}

    async def wait_for_requests_to_drain(self, deadline_s: float = GENERATE_DEADLINE_S) -> None:
        """Return when no request is in flight; requests that come meanwhile wait until it does."""
        self._close("drain")
        try:
            await bounded(self._drained(), what="the last answer", whom=self.name, deadline_s=deadline_s)
        finally:
            self._reopen("drain")

    async def _drained(self) -> None:
        while self._in_flight:
            await asyncio.sleep(0.01)

    async def set_global_steps(self, global_steps: int) -> None:
        """Stamp the tokens from now on with this policy version."""
        await self._stamp(int(global_steps))
        self._weights.version = int(global_steps)

    async def sleep(self) -> None:
        """Give device memory to training, after nothing is in flight; a server with devices of its own keeps it."""
        if self.rollout_mode is RolloutMode.STANDALONE or not self.config.get("free_cache_engine"):
            return
        self._close("sleep")
        await bounded(self._drained(), what="the last answer", whom=self.name, deadline_s=GENERATE_DEADLINE_S)
        if not self._on_cpu:
            await self._give_memory()

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """Take device memory back; `tags` "weights" and "kv_cache" select what. With the cache, requests go on."""
        if self.rollout_mode is RolloutMode.STANDALONE:
            return
        if not self._on_cpu:
            await self._take_memory(tags or ["kv_cache", "weights"])
        if tags is None or "kv_cache" in tags:
            await self.clear_kv_cache()
            self._reopen("sleep")

    async def start_profile(self, **kwargs: Any) -> None:
        """Start the engine's profiler."""
        raise UnsupportedError(f"{type(self).__name__} has no profiler", remedy="profile the process from outside")

    async def stop_profile(self) -> None:
        """Write the profile."""
        raise UnsupportedError(f"{type(self).__name__} has no profiler", remedy="profile the process from outside")

    # Weights

    async def begin_weight_update(
        self, version: int, use_shm: bool, deadline_s: float, **kwargs: Any
    ) -> list[dict[str, Any]]:
        """Let every worker listen for `version`; returns at once with what each said (socket, whether it stages).

        A worker that cannot stage receives during `apply_weight_update`, with generation paused.
        """
        return await self._weights.begin(version, use_shm, deadline_s, **kwargs)

    async def apply_weight_update(self, version: int) -> dict[str, Any]:
        """Put the received weights in; the server must be paused. Either all of `version` serves afterwards, or none.

        Raises TransportError when a worker fails; the server then refuses to generate, unless nothing was touched.
        """
        if not self._paused:
            raise TransportError(
                f"{self.name} must be paused before weights are applied", remedy="call abort_all_requests first"
            )
        return await self._weights.apply(version)

    async def abort_weight_update(self, version: int, reason: str) -> None:
        """Drop what was received and not yet applied; the old weights go on serving."""
        await self._weights.abort(version, reason)

    async def weight_state(self) -> dict[str, Any]:
        """Version that serves, whether it is stale, whether the server is paused, and what each worker says."""
        return {**await self._weights.state(), "paused": self._paused}

    async def _activate(self, version: int) -> None:
        await self.clear_kv_cache()
        await self._stamp(version)

    def _log_hint(self) -> str:
        if self._log_file is None:
            return "the engine's output above says why"
        return f"the end of its log {self._log_file}:\n{tail(self._log_file)}"
