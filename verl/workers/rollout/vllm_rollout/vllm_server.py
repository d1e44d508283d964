# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One vLLM engine behind asynchronous calls: token in, token out, and weights that change between two tokens."""

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

from verl.errors import ConfigError, DataError, PeerLost, TransportError, WaitTimeout
from verl.launch_info import REPLICA_RANK_ENV, LaunchInfo
from verl.platform import current_platform
from verl.utils.import_utils import optional_import
from verl.waits import bounded
from verl.workers.rollout.schemas import RolloutMode, StaleWeights, TokenOutput, VersionSpan
from verl.workers.rollout.utils import gather_or_cancel, redirect_output, run_uvicorn, tail
from verl.workers.rollout.vllm_rollout import vllm_symbols
from verl.workers.rollout.vllm_rollout.engine_args import (
    EngineSettings,
    adapter_arguments,
    engine_arguments,
    engine_environment,
    model_path,
    response_budget,
)
from verl.workers.rollout.vllm_rollout.health_app import health_app
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_NAME, VLLM_LORA_PATH

logger = logging.getLogger(__name__)
T = TypeVar("T")

# A control call (pause, resume, cache reset, version) is a message to an engine that may be in a long step.
CONTROL_DEADLINE_S = 120.0
# Applying staged weights repacks every layer on CPU; a large model takes minutes.
APPLY_DEADLINE_S = 600.0
# One answer; the client's own deadline is usually the shorter.
GENERATE_DEADLINE_S = 3600.0


class vLLMHttpServer:
    """A rollout server; `vLLMReplica` makes it a Ray actor.

    Weights: `begin_weight_update` lets the workers receive on a thread while generation goes on; between
    `abort_all_requests` and `resume_generation`, `apply_weight_update` puts them in. A failed apply leaves the server
    *stale*: it refuses to generate or to resume until an update has succeeded, so that no answer comes from a mixture.
    """

    worker_extension_cls: str | None = None
    """Dotted name that replaces the worker extension of the engine arguments."""

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
        self.config = config
        self.model_config = model_config
        self.rollout_mode = rollout_mode
        self.workers = list(workers or [])
        self.replica_rank = replica_rank
        self.node_rank = node_rank
        self.nnodes = nnodes
        self.name = f"rollout server {replica_rank}" + (f" node {node_rank}" if nnodes > 1 else "")
        self._address = address
        self._log_file = log_file
        self._port: int | None = None
        self._http: asyncio.Task[None] | None = None
        self._engine: Any = None
        self._vllm = SimpleNamespace()
        self._processes: list[Any] = []
        self._version = 0
        self._stale: str | None = None
        self._update: int | None = None
        self._update_is_adapter = False
        self._adapter = False
        self._paused = False
        self._in_flight: dict[str, asyncio.Task[Any] | None] = {}
        platform = current_platform()
        self._settings = EngineSettings(
            replica_rank, rollout_mode, platform.device_type, platform.vendor, node_rank, nnodes
        )
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
        if self.nnodes > 1:
            raise ConfigError("a replica over several nodes is not built", where="tensor_model_parallel_size")
        LaunchInfo.from_env().ensure_run_dir()
        self._vllm = vllm_symbols.load()
        self._start_engine()
        await self._ask(self._engine.update_weight_version(str(self._version)), "the weight version")
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
        arguments = engine_arguments(self.config, self.model_config, hf_config, self._settings)
        if self.worker_extension_cls is not None:
            arguments["worker_extension_cls"] = self.worker_extension_cls
        return arguments

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
            "status": "stale" if self._stale else "paused" if self._paused else "ok",
            "replica_rank": self.replica_rank,
            "pid": os.getpid(),
            "engine_pids": [process.pid for process in self._processes],
            "version": self._version,
            "in_flight": len(self._in_flight),
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
        if self._stale:
            raise StaleWeights(
                f"{self.name} refuses to generate: {self._stale}", remedy="a full weight update makes it serve again"
            )
        budget = self._budget(len(prompt_ids), sampling_params)
        if budget == 0:
            return self._empty_answer(sampling_params)
        params = self._vllm.SamplingParams(**self._request_params(sampling_params, budget))
        prompt = self._prompt(prompt_ids, image_data, video_data)
        options: dict[str, Any] = {"lora_request": self._adapter_request()} if self._adapter else {}
        if self.config.get("scheduling_policy") == "priority":
            options["priority"] = priority
        stream = self._engine.generate(prompt, params, request_id, **options)
        async with self._counted(request_id):
            final = await self._ask(_last(stream), f"the answer to request {request_id}", GENERATE_DEADLINE_S)
        return self._answer(final, wants_log_probs=params.logprobs is not None)

    async def generate_many(self, requests: list[dict[str, Any]]) -> list[TokenOutput]:
        """Answers to several requests, each a dict of `generate`'s arguments, in one call."""
        return await gather_or_cancel(*(self.generate(**request) for request in requests))

    def _budget(self, prompt_tokens: int, params: dict[str, Any]) -> int:
        if prompt_tokens > self.max_model_len:
            raise DataError(
                "the prompt is longer than the engine takes",
                where=self.name,
                got=f"{prompt_tokens} tokens",
                expected=f"at most max_model_len = {self.max_model_len}",
                remedy="raise actor_rollout_ref.rollout.max_model_len, or set data.filter_overlong_prompts",
            )
        lengths = int(self.config.prompt_length), int(self.config.response_length)
        return min(response_budget(params, prompt_tokens, *lengths), self.max_model_len - prompt_tokens)

    def _request_params(self, params: dict[str, Any], budget: int) -> dict[str, Any]:
        wanted = {key: value for key, value in params.items() if value is not None and key != "max_new_tokens"}
        logprobs = wanted.pop("logprobs", None)
        if wanted.get("n", 1) != 1:
            raise ConfigError(
                "one request gives one answer", where="sampling_params.n", got=wanted["n"], remedy="send n requests"
            )
        if wanted.get("stop") and self.config.get("skip_tokenizer_init"):
            raise ConfigError(
                "stop strings need the tokenizer",
                where="sampling_params.stop",
                got=wanted["stop"],
                remedy="set rollout.skip_tokenizer_init=false, or use stop_token_ids",
            )
        return wanted | {
            "max_tokens": budget,
            # vLLM counts alternatives beside the sampled token: 0 is the sampled token alone.
            "logprobs": None if logprobs in (None, False) else 0 if logprobs is True else int(logprobs),
            "detokenize": bool(wanted.get("stop")),
            "output_kind": self._vllm.RequestOutputKind.FINAL_ONLY,
        }

    def _prompt(self, prompt_ids: list[int], images: list[Any] | None, videos: list[Any] | None) -> Any:
        media = {kind: data for kind, data in (("image", images), ("video", videos)) if data}
        prompt: dict[str, Any] = {"prompt_token_ids": [int(token) for token in prompt_ids]}
        return self._vllm.TokensPrompt(**prompt, **({"multi_modal_data": media} if media else {}))

    def _adapter_request(self) -> Any:
        return self._vllm.LoRARequest(lora_name=VLLM_LORA_NAME, lora_int_id=VLLM_LORA_INT_ID, lora_path=VLLM_LORA_PATH)

    def _answer(self, final: Any, wants_log_probs: bool) -> TokenOutput:
        completion = final.outputs[0]
        tokens = list(completion.token_ids)
        log_probs = None
        if wants_log_probs:
            rows = completion.logprobs or []
            log_probs = [row[token].logprob for token, row in zip(tokens, rows, strict=True)]
        spans = [VersionSpan(int(span.version), span.start, span.end) for span in completion.weight_versions or ()]
        fields: dict[str, Any] = {
            "global_steps": spans[-1].version if spans else self._version,
            "finish_reason": completion.finish_reason,
        }
        if len(spans) > 1:
            fields["token_versions"] = spans
        reasons = {"abort": "aborted", "stop": "completed", "length": "completed"}
        stop_reason = reasons.get(completion.finish_reason, completion.finish_reason)
        return TokenOutput(tokens, log_probs, stop_reason=stop_reason, extra_fields=fields)

    def _empty_answer(self, params: dict[str, Any]) -> TokenOutput:
        fields = {"global_steps": self._version, "finish_reason": "length"}
        log_probs: list[float] | None = [] if params.get("logprobs") not in (None, False) else None
        return TokenOutput([], log_probs, stop_reason="completed", extra_fields=fields)

    @asynccontextmanager
    async def _counted(self, request_id: str) -> AsyncIterator[None]:
        self._in_flight[request_id] = asyncio.current_task()
        try:
            yield
        finally:
            self._in_flight.pop(request_id, None)

    # Control

    async def abort_all_requests(self, reset_prefix_cache: bool = True) -> dict[str, Any]:
        """Pause: requests in flight come back with the tokens they have, later ones wait for `resume_generation`."""
        aborted = sorted(self._in_flight)
        await self._ask(self._engine.pause_generation(mode="abort", clear_cache=reset_prefix_cache), "the pause")
        self._paused = True
        return {"aborted_count": len(aborted), "request_ids": aborted}

    async def resume_generation(self) -> None:
        """End the pause; refused while the weights are stale."""
        if self._stale:
            raise StaleWeights(f"{self.name} refuses to resume: {self._stale}", remedy="repeat the weight update")
        await self._ask(self._engine.resume_generation(), "the resumption")
        self._paused = False

    async def abort_request(self, request_id: str, reset_prefix_cache: bool = True) -> dict[str, Any]:
        """Abort one request; its caller gets the tokens it has."""
        known = request_id in self._in_flight
        if known:
            await self._ask(self._engine.abort(request_id), "the abort")
        return {"aborted": known, "request_id": request_id}

    async def clear_kv_cache(self) -> None:
        """Forget cached prefixes: they were computed by other weights."""
        await self._reset_caches()

    async def set_global_steps(self, global_steps: int) -> None:
        """Stamp the tokens from now on with this policy version."""
        await self._ask(self._engine.update_weight_version(str(int(global_steps))), "the weight version")
        self._version = int(global_steps)

    async def wait_for_requests_to_drain(self, deadline_s: float = GENERATE_DEADLINE_S) -> None:
        """Return when no request is in flight."""
        await bounded(self._drained(), what="the last answer", whom=self.name, deadline_s=deadline_s)

    async def _drained(self) -> None:
        while self._in_flight:
            await asyncio.sleep(0.05)

    async def sleep(self) -> None:
        """Give device memory to training: weights and cache when hybrid, after nothing is in flight."""
        if self.rollout_mode is RolloutMode.STANDALONE or not self.config.get("free_cache_engine"):
            return
        if self._settings.on_cpu:
            return
        await self.wait_for_requests_to_drain()
        # Hybrid: the next update brings all weights (level 2 drops them); colocated: they must come back (level 1).
        level = 2 if self.rollout_mode is RolloutMode.HYBRID and not self.lora_as_adapter else 1
        await self._ask(self._engine.sleep(level=level), "sleep")

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """Take device memory back; `tags` "weights" and "kv_cache" select what."""
        if self.rollout_mode is RolloutMode.STANDALONE or self._settings.on_cpu:
            return
        await self._ask(self._engine.wake_up(tags=tags or ["kv_cache", "weights"]), "waking up")
        if tags is None or "kv_cache" in tags:
            await self._reset_caches()

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
        answers = await self.collective_rpc(
            "verl_begin_weights",
            timeout=CONTROL_DEADLINE_S,
            kwargs={"version": version, "use_shm": use_shm, "deadline_s": deadline_s, **kwargs},
        )
        self._update = version
        self._update_is_adapter = bool(kwargs.get("peft_config")) and bool(kwargs.get("base_sync_done"))
        return answers

    async def apply_weight_update(self, version: int) -> dict[str, Any]:
        """Put the received weights in; the server must be paused. Either all of `version` serves afterwards, or none.

        Raises TransportError, with the server stale, when a worker fails.
        """
        if not self._paused:
            raise TransportError(
                f"{self.name} must be paused before weights are applied", remedy="call abort_all_requests first"
            )
        self._stale = f"the update to version {version} has not ended"
        try:
            workers = await self.collective_rpc("verl_apply_weights", timeout=APPLY_DEADLINE_S, args=(version,))
            versions = {worker["version"] for worker in workers}
            if versions != {version}:
                raise TransportError(
                    "workers applied other weights", where=self.name, got=sorted(versions), expected=version
                )
            await self._reset_caches()
            await self.set_global_steps(version)
        except (PeerLost, WaitTimeout):
            raise
        except Exception as error:
            await self._after_failed_apply(version, error)
            raise TransportError(
                f"applying weights of version {version} failed on {self.name}: {error}",
                remedy="push the same version again",
            ) from error
        self._adapter = self._adapter or self._update_is_adapter
        self._stale, self._update = None, None
        return {**workers[0], "apply_s": max(worker.get("apply_s", 0.0) for worker in workers), "workers": workers}

    async def _after_failed_apply(self, version: int, error: Exception) -> None:
        """Stale, unless every worker says that it has not touched a weight."""
        self._stale = f"the update to version {version} failed half way ({error})"
        workers = await self.collective_rpc("verl_weight_state", timeout=CONTROL_DEADLINE_S)
        untouched = not any(worker["stale"] for worker in workers) and len({w["version"] for w in workers}) == 1
        if untouched and workers[0]["version"] in (None, self._version):
            self._stale = None

    async def abort_weight_update(self, version: int, reason: str) -> None:
        """Drop what was received and not yet applied; the old weights go on serving."""
        await self.collective_rpc("verl_abort_weights", timeout=CONTROL_DEADLINE_S, args=(version, reason))
        self._update = None

    async def weight_state(self) -> dict[str, Any]:
        """Version that serves, and whether the server is stale, as the server and each worker see it."""
        workers = await self.collective_rpc("verl_weight_state", timeout=CONTROL_DEADLINE_S)
        return {
            "version": self._version,
            "stale": self._stale is not None,
            "reason": self._stale,
            "updating": self._update,
            "paused": self._paused,
            "workers": workers,
        }

    async def _reset_caches(self) -> None:
        done = await self._ask(self._engine.reset_prefix_cache(), "the prefix cache's reset")
        if done is False:
            raise TransportError(
                f"{self.name} still holds cached prefixes of other weights: requests are in flight",
                remedy="pause before the caches are reset",
            )
        await self._ask(self._engine.reset_encoder_cache(), "the encoder cache's reset")

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
