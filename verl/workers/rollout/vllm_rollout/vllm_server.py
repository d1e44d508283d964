# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One vLLM engine behind asynchronous calls: token in, token out, and weights that change between two tokens."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from types import SimpleNamespace
from typing import Any, TypeVar

from verl.errors import ConfigError, PeerLost, TransportError
from verl.launch_info import LaunchInfo
from verl.platform import current_platform
from verl.utils.import_utils import optional_import
from verl.utils.tokenizer import hf_processor
from verl.waits import bounded
from verl.workers.rollout.health_app import ASGI
from verl.workers.rollout.schemas import RolloutMode, TokenOutput
from verl.workers.rollout.served_weights import APPLY_DEADLINE_S, CONTROL_DEADLINE_S
from verl.workers.rollout.server import GENERATE_DEADLINE_S, RolloutServer
from verl.workers.rollout.vllm_rollout import exchange, vllm_symbols
from verl.workers.rollout.vllm_rollout.engine_args import (
    EngineSettings,
    adapter_arguments,
    engine_arguments,
    engine_environment,
    model_path,
)
from verl.workers.rollout.vllm_rollout.openai_app import OpenAIRoutes, without_tokenizer
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_NAME, VLLM_LORA_PATH

T = TypeVar("T")

# Between the end of a process and its exit code.
_EXIT_CODE_S = 2.0


class vLLMHttpServer(RolloutServer):
    """A server over vLLM's `AsyncLLM`; `vLLMReplica` makes it a Ray actor. The engine is a process of its own."""

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
        **kwargs: Any,
    ) -> None:
        super().__init__(
            config,
            model_config,
            rollout_mode,
            workers,
            replica_rank,
            node_rank,
            gpus_per_node,
            nnodes,
            cuda_visible_devices,
            **kwargs,
        )
        platform = current_platform()
        self._settings = EngineSettings(self.replica_rank, self.rollout_mode, platform.device_type, platform.vendor)
        os.environ.update(engine_environment(self.config, self._settings))
        self._engine: Any = None
        self._vllm = SimpleNamespace()
        self._processes: list[Any] = []
        self._death: asyncio.Future[None] | None = None

    @property
    def lora_as_adapter(self) -> bool:
        """Whether training sends an adapter for a base that stays, instead of merged weights."""
        return bool(adapter_arguments(self.model_config))

    # Life

    async def _start_engine(self) -> None:
        """The constructor runs on this thread: the engine's process asks for a signal on the death of the thread that
        made it, and the event loop's thread lives as long as the server.
        """
        # vLLM's own sockets belong where ours are: in the private directory that goes with the job.
        os.environ["VLLM_RPC_BASE_PATH"] = str(LaunchInfo.from_env().run_dir)
        self._vllm = vllm_symbols.load()
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
        self._death = _first_death(self._processes)

    def _arguments(self) -> dict[str, Any]:
        transformers = optional_import("transformers", needed_for="rollout.name=vllm")
        hf_config = transformers.AutoConfig.from_pretrained(
            model_path(self.model_config), trust_remote_code=bool(self.model_config.get("trust_remote_code"))
        )
        return engine_arguments(self.config, self.model_config, hf_config, self._settings)

    async def _stop_engine(self) -> None:
        if self._engine is not None:
            self._engine.shutdown(timeout=0)

    async def _engine_pids(self) -> list[int]:
        if self._engine is None:
            raise PeerLost(f"{self.name} has not been launched")
        # A question that the engine's loop itself must answer: a process that hangs has no health either.
        await self._ask(self._engine.get_weight_version(), "a sign of life")
        return [process.pid for process in self._processes]

    def _http_app(self) -> ASGI:
        health = super()._http_app()
        if self.config.get("skip_tokenizer_init"):
            return without_tokenizer(health)
        names = self.config.get("prometheus") or {}
        return OpenAIRoutes(
            health, self._engine, model_path(self.model_config), names.get("served_model_name"), self._admit_http
        )

    @asynccontextmanager
    async def _admit_http(self) -> AsyncIterator[None]:
        self._weights.refuse_if_stale("generate")
        async with self._admitted("http"):
            yield

    # Generation

    async def _answer(
        self,
        request_id: str,
        prompt_ids: list[int],
        params: dict[str, Any],
        budget: int,
        image_data: list[Any] | None = None,
        video_data: list[Any] | None = None,
        priority: int = 0,
    ) -> TokenOutput:
        has_tokenizer = not self.config.get("skip_tokenizer_init")
        sampling = exchange.to_sampling_params(params, budget, self._vllm, has_tokenizer=has_tokenizer)
        if image_data or video_data:
            prompt_ids = exchange.narrow_media(prompt_ids, self._processor)
        prompt = exchange.to_prompt(prompt_ids, image_data, video_data, self._vllm)
        stream = self._engine.generate(prompt, sampling, request_id, **self._request_options(priority))
        final = await self._ask(_last(stream), f"the answer to request {request_id}", GENERATE_DEADLINE_S)
        return exchange.to_token_output(final, params, self._weights.version)

    @cached_property
    def _processor(self) -> Any:
        trust = bool(self.model_config.get("trust_remote_code"))
        return hf_processor(model_path(self.model_config), trust_remote_code=trust)

    def _request_options(self, priority: int) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self._weights.adapter:
            options["lora_request"] = self._vllm.LoRARequest(
                lora_name=VLLM_LORA_NAME, lora_int_id=VLLM_LORA_INT_ID, lora_path=VLLM_LORA_PATH
            )
        if self.config.get("scheduling_policy") == "priority":
            options["priority"] = priority
        return options

    # Control

    async def _abort_in_flight(self, reset_prefix_cache: bool) -> None:
        await self._ask(self._engine.pause_generation(mode="abort", clear_cache=reset_prefix_cache), "the pause")

    async def _go_on(self) -> None:
        await self._ask(self._engine.resume_generation(), "the resumption")

    async def _abort_one(self, request_id: str) -> None:
        await self._ask(self._engine.abort(request_id), "the abort")

    async def clear_kv_cache(self) -> None:
        """Forget cached prefixes: they were computed by other weights."""
        done = await self._ask(self._engine.reset_prefix_cache(), "the prefix cache's reset")
        if done is False:
            raise TransportError(
                f"{self.name} still holds cached prefixes of other weights: requests are in flight",
                remedy="pause before the caches are reset",
            )
        await self._ask(self._engine.reset_encoder_cache(), "the encoder cache's reset")

    async def _stamp(self, version: int) -> None:
        await self._ask(self._engine.update_weight_version(str(version)), "the weight version")

    async def _give_memory(self) -> None:
        # Hybrid: the next update brings all weights (level 2 drops them); colocated: they must come back (level 1).
        level = 2 if self.rollout_mode is RolloutMode.HYBRID and not self.lora_as_adapter else 1
        await self._ask(self._engine.sleep(level=level), "sleep")

    async def _take_memory(self, tags: list[str]) -> None:
        await self._ask(self._engine.wake_up(tags=tags), "waking up")

    async def start_profile(self, **kwargs: Any) -> None:
        """Start vLLM's profiler, where `engine_kwargs.vllm.profiler_config` has set one up."""
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

    # The engine's process

    async def _ask(self, call: Awaitable[T], what: str, deadline_s: float = CONTROL_DEADLINE_S) -> T:
        """Await the engine with a deadline; its death becomes PeerLost with the process's name."""
        try:
            living = self._unless_dead(call)
            return await bounded(living, what=what, whom=f"the engine of {self.name}", deadline_s=deadline_s)
        except self._vllm.EngineDeadError as error:
            fates = (f"{process.name} pid {process.pid}: {_fate(process.exitcode)}" for process in self._processes)
            raise PeerLost(
                f"the engine of {self.name} (pid {os.getpid()}) has died: {', '.join(fates) or 'no process'}",
                remedy=self._log_hint(),
            ) from error

    async def _unless_dead(self, call: Awaitable[T]) -> T:
        # vLLM never answers the control calls that are under way when its engine's process dies.
        task = asyncio.ensure_future(call)
        ends: list[asyncio.Future[Any]] = [task] if self._death is None else [task, self._death]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.to_thread(_await_exit_code, self._processes)
                raise self._vllm.EngineDeadError()
            return task.result()
        finally:
            task.cancel()


def _first_death(processes: Sequence[Any]) -> "asyncio.Future[None]":
    """Done as soon as one of the processes has ended."""
    loop = asyncio.get_running_loop()
    death = loop.create_future()

    def ended(sentinel: int) -> None:
        # Readable from now on, for ever.
        loop.remove_reader(sentinel)
        if not death.done():
            death.set_result(None)

    for process in processes:
        loop.add_reader(process.sentinel, ended, process.sentinel)
    return death


def _await_exit_code(processes: Sequence[Any]) -> None:
    """Return when one of them, whose end was noticed a moment ago, can be asked how it ended."""
    end = time.monotonic() + _EXIT_CODE_S
    while all(process.exitcode is None for process in processes) and time.monotonic() < end:
        time.sleep(0.02)


async def _last(stream: AsyncIterator[T]) -> T:
    final: Any = None
    async for item in stream:
        final = item
    return final


def _fate(exitcode: int | None) -> str:
    if exitcode is None:
        return "still running, but cut off"
    return f"killed by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"exit code {exitcode}"
