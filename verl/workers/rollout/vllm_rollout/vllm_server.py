# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One vLLM engine behind asynchronous calls: token in, token out, and weights that change between two tokens."""

import asyncio
import logging
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

from verl.errors import ConfigError, PeerLost, TransportError
from verl.launch_info import REPLICA_RANK_ENV, LaunchInfo
from verl.platform import current_platform
from verl.utils.import_utils import optional_import
from verl.waits import bounded
from verl.workers.rollout.schemas import RolloutMode, TokenOutput
from verl.workers.rollout.utils import gather_or_cancel, redirect_output, run_uvicorn, tail
from verl.workers.rollout.vllm_rollout import exchange, vllm_symbols
from verl.workers.rollout.vllm_rollout.engine_args import (
    EngineSettings,
    adapter_arguments,
    engine_arguments,
    engine_environment,
    model_path,
    refuse_several_nodes,
)
from verl.workers.rollout.vllm_rollout.health_app import health_app
from verl.workers.rollout.vllm_rollout.served_weights import APPLY_DEADLINE_S, CONTROL_DEADLINE_S, ServedWeights
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_NAME, VLLM_LORA_PATH

logger = logging.getLogger(__name__)
T = TypeVar("T")

# One answer, the wait for an update included; the client's own deadline is usually the shorter.
GENERATE_DEADLINE_S = 3600.0


class vLLMHttpServer:
    """A rollout server; `vLLMReplica` makes it a Ray actor.

    Weights: `begin_weight_update` lets the workers receive on a thread while generation goes on; between
    `abort_all_requests` and `resume_generation`, `apply_weight_update` puts them in (`ServedWeights`).
    Requests that come while the server is paused, drained or asleep wait here and never reach the engine.
    """

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
        refuse_several_nodes(nnodes)
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
        self._engine: Any = None
        self._vllm = SimpleNamespace()
        self._processes: list[Any] = []
        self._weights = ServedWeights(self.name, self.collective_rpc, self._activate)
        self._paused = False
        self._open = asyncio.Event()
        self._open.set()
        self._in_flight: Counter[str] = Counter()
        platform = current_platform()
        self._settings = EngineSettings(replica_rank, rollout_mode, platform.device_type, platform.vendor)
        os.environ[REPLICA_RANK_ENV] = str(replica_rank)
        os.environ.update(engine_environment(config, self._settings))
        if cuda_visible_devices:
            platform.settle_visible_devices()
            os.environ[platform.visible_devices_env] = cuda_visible_devices

    # Life

    async def launch_server(
        self, master_address: str | None = None, master_port: int | None = None, dp_rpc_port: int | None = None
    ) -> None:
        """Start the engine and the HTTP endpoint.

        The engine's constructor runs on this thread: its process asks for a signal on the death of the thread that
        made it, and the event loop's thread lives as long as the server.
        """
        # vLLM's own sockets belong where ours are: in the private directory that goes with the job.
        os.environ["VLLM_RPC_BASE_PATH"] = str(LaunchInfo.from_env().ensure_run_dir())
        self._vllm = vllm_symbols.load()
        self._start_engine()
        await self._ask(self._engine.update_weight_version(str(self._weights.version)), "the weight version")
        self._port, self._http = await run_uvicorn(health_app(self.health), None, self._address)

    def _start_engine(self) -> None:
        try:
            engine_config = self._vllm.AsyncEngineArgs(**self._arguments()).create_engine_config()
        except (ValueError, TypeError, NotImplementedError) as error:
            raise ConfigError(f"vLLM refuses its arguments: {error}", where="actor_rollout_ref.rollout") from error
        self.max_model_len = engine_config.model_config.max_model_len
        before = set(multiprocessing.active_children())
        try:
            self._engine = self._vllm.AsyncLLM.from_vllm_config(
                engine_config, disable_log_stats=self.config.get("disable_log_stats") is not False
            )
        except Exception as error:
            raise PeerLost(f"the engine of {self.name} could not start: {error}", remedy=self._log_hint()) from error
        self._processes = [child for child in multiprocessing.active_children() if child not in before]

    def _arguments(self) -> dict[str, Any]:
        transformers = optional_import("transformers", needed_for="rollout.name=vllm")
        hf_config = transformers.AutoConfig.from_pretrained(
            model_path(self.model_config), trust_remote_code=bool(self.model_config.get("trust_remote_code"))
        )
        return engine_arguments(self.config, self.model_config, hf_config, self._settings)

    async def shutdown(self) -> None:
        """Stop the endpoint and the engine's processes."""
        if self._http is not None:
            self._http.cancel()
        if self._engine is not None:
            self._engine.shutdown(timeout=0)

    def get_server_address(self) -> tuple[str, int]:
        """Host and real port of the HTTP endpoint."""
        if self._port is None:
            raise ConfigError(f"{self.name} has not been launched", remedy="call launch_server first")
        return self._address, self._port

    async def health(self) -> dict[str, Any]:
        """Facts of a server that can answer; raises PeerLost, with the name of the dead process, otherwise."""
        if self._engine is None:
            raise PeerLost(f"{self.name} has not been launched")
        if self._http is not None and self._http.done():
            raise PeerLost(f"the HTTP listener of {self.name} (pid {os.getpid()}) has ended")
        try:
            await self._engine.check_health()
        except self._vllm.EngineDeadError as error:
            raise self._lost() from error
        return {
            "status": "stale" if self._weights.stale else "ok" if self._open.is_set() else "paused",
            "replica_rank": self.replica_rank,
            "pid": os.getpid(),
            "engine_pids": [process.pid for process in self._processes],
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
        budget = exchange.token_budget(
            len(prompt_ids), sampling_params, self.config, self.max_model_len, whom=self.name
        )
        if budget == 0:
            return exchange.empty_output(sampling_params, self._weights.version)
        params = exchange.to_sampling_params(
            sampling_params, budget, self._vllm, has_tokenizer=not self.config.get("skip_tokenizer_init")
        )
        prompt = exchange.to_prompt(prompt_ids, image_data, video_data, self._vllm)
        await bounded(self._open.wait(), what="the end of the pause", whom=self.name, deadline_s=GENERATE_DEADLINE_S)
        async with self._counted(request_id):
            stream = self._engine.generate(prompt, params, request_id, **self._request_options(priority))
            final = await self._ask(_last(stream), f"the answer to request {request_id}", GENERATE_DEADLINE_S)
        return exchange.to_token_output(final, sampling_params, self._weights.version)

    async def generate_many(self, requests: list[dict[str, Any]]) -> list[TokenOutput]:
        """Answers to several requests, each a dict of `generate`'s arguments, in one call."""
        return await gather_or_cancel(*(self.generate(**request) for request in requests))

    def _request_options(self, priority: int) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self._weights.adapter:
            options["lora_request"] = self._vllm.LoRARequest(
                lora_name=VLLM_LORA_NAME, lora_int_id=VLLM_LORA_INT_ID, lora_path=VLLM_LORA_PATH
            )
        if self.config.get("scheduling_policy") == "priority":
            options["priority"] = priority
        return options

    @asynccontextmanager
    async def _counted(self, request_id: str) -> AsyncIterator[None]:
        # The same id can come twice: sent again by a caller whose first call has been cancelled a moment ago.
        self._in_flight[request_id] += 1
        try:
            yield
        finally:
            self._in_flight[request_id] -= 1
            if not self._in_flight[request_id]:
                del self._in_flight[request_id]

    # Control

    async def abort_all_requests(self, reset_prefix_cache: bool = True) -> dict[str, Any]:
        """Pause: requests in flight come back with the tokens they have, later ones wait for `resume_generation`."""
        self._open.clear()
        aborted = sorted(self._in_flight)
        await self._ask(self._engine.pause_generation(mode="abort", clear_cache=reset_prefix_cache), "the pause")
        self._paused = True
        return {"aborted_count": len(aborted), "request_ids": aborted}

    async def resume_generation(self) -> None:
        """End the pause; refused while the weights are stale."""
        self._weights.refuse_if_stale("resume")
        await self._ask(self._engine.resume_generation(), "the resumption")
        self._paused = False
        self._open.set()

    async def abort_request(self, request_id: str, reset_prefix_cache: bool = True) -> dict[str, Any]:
        """Abort one request; its caller gets the tokens it has."""
        known = request_id in self._in_flight
        if known:
            await self._ask(self._engine.abort(request_id), "the abort")
        return {"aborted": known, "request_id": request_id}

    async def wait_for_requests_to_drain(self, deadline_s: float = GENERATE_DEADLINE_S) -> None:
        """Return when no request is in flight; requests that come meanwhile wait until it does."""
        was_open = self._open.is_set()
        self._open.clear()
        try:
            await bounded(self._drained(), what="the last answer", whom=self.name, deadline_s=deadline_s)
        finally:
            if was_open:
                self._open.set()

    async def _drained(self) -> None:
        while self._in_flight:
            await asyncio.sleep(0.01)

    async def clear_kv_cache(self) -> None:
        """Forget cached prefixes: they were computed by other weights."""
        done = await self._ask(self._engine.reset_prefix_cache(), "the prefix cache's reset")
        if done is False:
            raise TransportError(
                f"{self.name} still holds cached prefixes of other weights: requests are in flight",
                remedy="pause before the caches are reset",
            )
        await self._ask(self._engine.reset_encoder_cache(), "the encoder cache's reset")

    async def set_global_steps(self, global_steps: int) -> None:
        """Stamp the tokens from now on with this policy version."""
        await self._ask(self._engine.update_weight_version(str(int(global_steps))), "the weight version")
        self._weights.version = int(global_steps)

    async def sleep(self) -> None:
        """Give device memory to training, after nothing is in flight; a server with devices of its own keeps it."""
        if self.rollout_mode is RolloutMode.STANDALONE or not self.config.get("free_cache_engine"):
            return
        await self.wait_for_requests_to_drain()
        self._open.clear()
        if self._settings.on_cpu:
            return
        # Hybrid: the next update brings all weights (level 2 drops them); colocated: they must come back (level 1).
        level = 2 if self.rollout_mode is RolloutMode.HYBRID and not self.lora_as_adapter else 1
        await self._ask(self._engine.sleep(level=level), "sleep")

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """Take device memory back; `tags` "weights" and "kv_cache" select what. With the cache, requests go on."""
        if self.rollout_mode is RolloutMode.STANDALONE:
            return
        if not self._settings.on_cpu:
            await self._ask(self._engine.wake_up(tags=tags or ["kv_cache", "weights"]), "waking up")
        if tags is None or "kv_cache" in tags:
            await self.clear_kv_cache()
            if not self._paused:
                self._open.set()

    @property
    def lora_as_adapter(self) -> bool:
        """Whether training sends an adapter for a base that stays, instead of merged weights."""
        return bool(adapter_arguments(self.model_config))

    async def start_profile(self, **kwargs: Any) -> None:
        await self._ask(self._engine.start_profile(**kwargs), "the profiler's start")

    async def stop_profile(self) -> None:
        await self._ask(self._engine.stop_profile(), "the profiler's end")

    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method of every vLLM worker, that of the worker extension included; one result per worker."""
        call = self._engine.collective_rpc(method, timeout, args, kwargs)
        return await self._ask(call, f"{method} of the workers", timeout or APPLY_DEADLINE_S)

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
        await self.set_global_steps(version)

    # Peers

    async def _ask(self, call: Awaitable[T], what: str, deadline_s: float = CONTROL_DEADLINE_S) -> T:
        """Await the engine with a deadline; its death becomes PeerLost with the process's name."""
        try:
            return await bounded(call, what=what, whom=f"the engine of {self.name}", deadline_s=deadline_s)
        except self._vllm.EngineDeadError as error:
            raise self._lost() from error

    def _lost(self) -> PeerLost:
        fates = ", ".join(f"{process.name} pid {process.pid}: {_fate(process.exitcode)}" for process in self._processes)
        return PeerLost(
            f"the engine of {self.name} (pid {os.getpid()}) has died: {fates or 'no process'}",
            remedy=self._log_hint(),
        )

    def _log_hint(self) -> str:
        if self._log_file is None:
            return "the engine's output above says why"
        return f"the end of its log {self._log_file}:\n{tail(self._log_file)}"


async def _last(stream: AsyncIterator[T]) -> T:
    final: Any = None
    async for item in stream:
        final = item
    return final


def _fate(exitcode: int | None) -> str:
    if exitcode is None:
        return "still running, but cut off"
    return f"killed by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"exit code {exitcode}"
