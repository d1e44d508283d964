# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A code interpreter as a tool: programs run in Sandbox Fusion, through one pool per job.

The pool and the limiter are named actors in the job's own Ray namespace: all workers of a job meet the same two, and
two jobs on one cluster never meet.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, TypeVar

import ray

from verl.errors import ConfigError, PeerLost, UnsupportedError, WaitTimeout
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse, as_response
from verl.utils.reward_score.sandbox_fusion.utils import API_TIMEOUT, MAX_RETRIES, SandboxRun, run_in_sandbox
from verl.waits import bounded, expired, waiting_on

__all__ = ["ExecutionWorker", "PoolMode", "SandboxFusionTool", "TokenBucketWorker", "init_execution_pool"]

POOL_NAME = "sandbox-execution-pool"
LIMITER_NAME = "sandbox-rate-limiter"
# Time that a call may stand in the queue of the pool and the limiter, before it runs.
QUEUE_DEADLINE_S = 600.0
# Characters of output that leave the pool; the agent loop cuts further, to max_tool_response_length.
MAX_OUTPUT_CHARS = 64 * 1024

T = TypeVar("T")


class CodeResponse(ToolResponse):
    """A program's output, and what became of the run."""

    metrics: dict[str, Any] = {}


class PoolMode(Enum):
    """How the pool runs functions."""

    ThreadMode = 1
    ProcessMode = 2


class TokenBucketWorker:
    """Slots shared by all pools of a job: at most `rate_limit` are out at once, given in the order of asking."""

    def __init__(self, rate_limit: int) -> None:
        if rate_limit < 1:
            raise ConfigError("a rate limit must be positive", where="rate_limit", got=rate_limit)
        self.rate_limit = rate_limit
        self._out = 0
        self._slots = asyncio.Semaphore(rate_limit)

    async def acquire(self, deadline_s: float = QUEUE_DEADLINE_S) -> bool:
        """Wait for a slot; False (and no slot taken) when none came free in time."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._slots.acquire()
        except TimeoutError:
            return False
        self._out += 1
        return True

    async def release(self) -> None:
        if self._out == 0:
            # One release too many would let more calls through than the limit, for the rest of the job.
            return
        self._out -= 1
        self._slots.release()

    async def get_current_count(self) -> int:
        """Slots that are out."""
        return self._out


class ExecutionWorker:
    """Runs functions in its threads, each holding a slot of the job's limiter while it runs."""

    def __init__(self, enable_global_rate_limit: bool = True, rate_limit: int = 10) -> None:
        self.rate_limit_worker = self._init_rate_limit(rate_limit) if enable_global_rate_limit else None

    def _init_rate_limit(self, rate_limit: int) -> Any:
        actor_cls = ray.remote(TokenBucketWorker)
        return actor_cls.options(name=LIMITER_NAME, get_if_exists=True, num_cpus=0, max_concurrency=4096).remote(
            rate_limit
        )

    def ping(self) -> bool:
        return True

    def execute(self, fn: Callable[..., T], *fn_args: Any, **fn_kwargs: Any) -> T:
        """The function's result; its exception goes to the caller, and the slot is free again either way."""
        with self._slot():
            return fn(*fn_args, **fn_kwargs)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if self.rate_limit_worker is None:
            yield
            return
        with waiting_on("a slot", LIMITER_NAME, QUEUE_DEADLINE_S):
            # The limiter itself gives up at the deadline, so that no slot is granted to nobody.
            granted = ray.get(self.rate_limit_worker.acquire.remote(QUEUE_DEADLINE_S), timeout=QUEUE_DEADLINE_S + 60)
        if not granted:
            raise expired("free slot", LIMITER_NAME, QUEUE_DEADLINE_S, remedy="raise rate_limit of the tool")
        try:
            yield
        finally:
            self.rate_limit_worker.release.remote()


def init_execution_pool(
    num_workers: int,
    enable_global_rate_limit: bool = True,
    rate_limit: int = 10,
    mode: PoolMode = PoolMode.ThreadMode,
) -> Any:
    """The job's execution pool (an `ExecutionWorker` actor with `num_workers` threads); made by whoever asks first."""
    if mode != PoolMode.ThreadMode:
        raise UnsupportedError(
            "the execution pool runs in threads",
            got=mode,
            remedy="use PoolMode.ThreadMode: programs run in the sandbox",
        )
    actor_cls = ray.remote(ExecutionWorker)
    return actor_cls.options(name=POOL_NAME, get_if_exists=True, num_cpus=0, max_concurrency=num_workers).remote(
        enable_global_rate_limit=enable_global_rate_limit, rate_limit=rate_limit
    )


class SandboxFusionTool(BaseTool):
    """Runs code the model writes and answers with what it prints.

    Options: sandbox_fusion_url; num_workers, rate_limit, enable_global_rate_limit of the pool; default_timeout (s),
    default_language, memory_limit_mb of a program; max_output_chars.
    """

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        super().__init__(config, tool_schema)
        self.num_workers = config.get("num_workers", 10)
        self.rate_limit = config.get("rate_limit", 10)
        self.default_timeout = config.get("default_timeout", 30)
        self.default_language = config.get("default_language", "python")
        self.enable_global_rate_limit = config.get("enable_global_rate_limit", True)
        self.sandbox_fusion_url = config.get("sandbox_fusion_url", "")
        self.memory_limit_mb = config.get("memory_limit_mb", 1024)
        self.max_output_chars = config.get("max_output_chars", MAX_OUTPUT_CHARS)
        if not self.sandbox_fusion_url:
            raise ConfigError(
                "the tool has no sandbox", where="sandbox_fusion_url", remedy="give the service's address"
            )
        self._instance_dict: dict[str, dict[str, Any]] = {}
        self._pool: Any = None

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        return getattr(self, "tool_schema", None) or _SCHEMA

    @property
    def execution_pool(self) -> Any:
        """The job's pool; asked for when first used, because a tool is also built to read its schema."""
        if self._pool is None:
            self._pool = init_execution_pool(
                num_workers=self.num_workers,
                enable_global_rate_limit=self.enable_global_rate_limit,
                rate_limit=self.rate_limit,
            )
        return self._pool

    async def create(
        self, instance_id: str | None = None, ground_truth: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        instance_id = instance_id or str(uuid.uuid4())
        self._instance_dict[instance_id] = {"response": "", "ground_truth": ground_truth, "reward": []}
        return instance_id, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        """Run `parameters["code"]`; whatever goes wrong is told to the model, and counted in the metrics."""
        code = parameters.get("code")
        if not isinstance(code, str):
            given = "is missing" if code is None else f"is a {type(code).__name__}"
            return (
                ToolResponse(text=f"Error: the argument `code` {given}; it must be a string."),
                None,
                {"status": "no_code"},
            )
        timeout = parameters.get("timeout", self.default_timeout)
        timeout = timeout if isinstance(timeout, int | float) and 0 < timeout <= 600 else self.default_timeout
        language = parameters.get("language") or self.default_language
        deadline_s = QUEUE_DEADLINE_S + self._longest_call_s(timeout)
        ref = self.execution_pool.execute.remote(self.execute_code, instance_id, code, timeout, language)
        try:
            result = await bounded(ref, what="a program's output", whom=POOL_NAME, deadline_s=deadline_s)
        except (WaitTimeout, PeerLost, ray.exceptions.RayError) as error:
            if isinstance(error, ray.exceptions.RayActorError):
                # The pool is gone; the next call asks for a new one.
                self._pool = None
            # The cause of a remote error, without its remote traceback: the model reads this.
            cause = getattr(error, "cause", error)
            return ToolResponse(text=f"Error: the code could not be run ({cause})"), None, {"status": "pool_error"}
        response = as_response(result)
        return response, None, dict(getattr(response, "metrics", {}))

    def execute_code(
        self, instance_id: str, code: str, timeout: float = 30, language: str = "python"
    ) -> ToolResponse | str | None:
        """What the model is told of a run; this runs in the pool. Override it to run code elsewhere."""
        run = run_in_sandbox(
            self.sandbox_fusion_url,
            code,
            compile_timeout_s=timeout,
            run_timeout_s=timeout,
            memory_limit_mb=self.memory_limit_mb,
            language=language,
        )
        return CodeResponse(
            text=shorten(describe_run(run, timeout), self.max_output_chars),
            metrics={
                "status": run.status,
                "attempts": run.attempts,
                "infrastructure_failed": run.infrastructure_failed,
            },
        )

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> Any:
        return self._instance_dict[instance_id]["reward"]

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        self._instance_dict.pop(instance_id, None)

    def __getstate__(self) -> dict[str, Any]:
        # A bound method travels to the pool: without the handle of that very pool, and without other calls' state.
        return self.__dict__ | {"_pool": None, "_instance_dict": {}}

    @staticmethod
    def _longest_call_s(timeout_s: float) -> float:
        pauses_s = sum(2**attempt for attempt in range(MAX_RETRIES))
        return (2 * timeout_s + API_TIMEOUT) * (MAX_RETRIES + 1) + pauses_s


def describe_run(run: SandboxRun, timeout_s: float) -> str:
    """What the model is told of a run."""
    output = run.stdout + run.stderr
    if run.status == "success":
        return output
    notes = {
        "run_error": f"The program ended with return code {run.return_code}.",
        "timeout": f"The program ran longer than {timeout_s:g} s and was stopped.",
        "compile_error": "The program does not compile.",
        "compile_timeout": f"The program compiled longer than {timeout_s:g} s.",
    }
    note = notes.get(run.status, f"Error: the sandbox failed, not the program ({run.error}).")
    return "\n".join(filter(None, (output.rstrip("\n"), note)))


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters: both ends, and a mark in between."""
    if len(text) <= limit:
        return text
    mark = f"\n... {len(text)} characters in all ...\n"
    keep = max(0, limit - len(mark))
    return text[: keep - keep // 2] + mark[: limit - keep] + (text[-(keep // 2) :] if keep // 2 else "")


_SCHEMA = OpenAIFunctionToolSchema.model_validate(
    {
        "type": "function",
        "function": {
            "name": "code_interpreter",
            "description": "Runs a program and returns what it prints.",
            "parameters": {
                "type": "object",
                "properties": {"code": {"type": "string", "description": "The program."}},
                "required": ["code"],
            },
        },
    }
)
