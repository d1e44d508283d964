# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sandbox Fusion over HTTP: one run with retries, and a program against its test cases."""

import concurrent.futures
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests

from verl.utils.reward_score.code_harness import call_harness, outputs_match, stream_text

__all__ = [
    "API_TIMEOUT",
    "DEFAULT_TIMEOUT",
    "INITIAL_RETRY_DELAY",
    "MAX_RETRIES",
    "SUPPORTED_LANGUAGES",
    "SandboxRun",
    "call_sandbox_api",
    "check_correctness",
    "run_in_sandbox",
]

logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 10
MAX_RETRIES = 3
INITIAL_RETRY_DELAY = 1
# Beyond the program's own limits: the sandbox's queue, its start of a container, the network.
API_TIMEOUT = 10

SUPPORTED_LANGUAGES = [
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript", "sql", "rust", "cuda",
    "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit", "kotlin_script", "jest", "verilog",
    "python_gpu", "lean", "swift", "racket",
]  # fmt: skip

# The gateway is busy or a worker was lost; the program had no chance.
_RETRY_STATUS = frozenset({429, 502, 503, 504})

# What a test case comes to, beside True (right) and False (wrong).
SANDBOX_FAILURE, RUNTIME_ERROR, TIMEOUT, COMPILE_ERROR = -1, -2, -3, -4


@dataclass(frozen=True)
class SandboxRun:
    """What became of one program.

    `status`: success, run_error, timeout (its own limit), compile_error, compile_timeout; or, where the program is
    not to blame, sandbox_error (the sandbox said so), api_error (no usable answer), api_timeout (no answer in time).
    """

    status: str
    stdout: str = ""
    stderr: str = ""
    return_code: int | None = None
    execution_time_s: float | None = None
    attempts: int = 1
    error: str | None = None
    response: dict[str, Any] | None = None

    @property
    def infrastructure_failed(self) -> bool:
        """Nothing is known about the program."""
        return self.status in ("sandbox_error", "api_error", "api_timeout")


def call_sandbox_api(
    sandbox_fusion_url: str,
    code: str,
    stdin: str | None,
    compile_timeout: int,
    run_timeout: int,
    memory_limit_mb: int,
    language: str = "python",
) -> tuple[dict[str, Any] | None, str | None]:
    """(the sandbox's answer, None), or (None, why there is none) after the retries."""
    run = run_in_sandbox(
        sandbox_fusion_url, code, stdin=stdin, compile_timeout_s=compile_timeout, run_timeout_s=run_timeout,
        memory_limit_mb=memory_limit_mb, language=language,
    )  # fmt: skip
    if run.response is not None and not run.infrastructure_failed:
        return run.response, None
    return None, f"{run.status}: {run.error}"


def run_in_sandbox(
    url: str,
    code: str,
    *,
    stdin: str | None = None,
    compile_timeout_s: float = DEFAULT_TIMEOUT,
    run_timeout_s: float = DEFAULT_TIMEOUT,
    memory_limit_mb: int = 1024,
    language: str = "python",
    max_retries: int | None = None,
    retry_delay_s: float | None = None,
    api_timeout_s: float = API_TIMEOUT,
) -> SandboxRun:
    """Run a program; failures that are not the program's are tried again, each time after twice the pause.

    Without `max_retries` and `retry_delay_s` the module's MAX_RETRIES and INITIAL_RETRY_DELAY hold.
    """
    max_retries = MAX_RETRIES if max_retries is None else max_retries
    retry_delay_s = INITIAL_RETRY_DELAY if retry_delay_s is None else retry_delay_s
    if language not in SUPPORTED_LANGUAGES:
        return SandboxRun("api_error", error=f"the sandbox does not know the language {language!r}", attempts=0)
    payload: dict[str, Any] = {
        "code": code,
        "stdin": stdin,
        "language": language,
        "compile_timeout": compile_timeout_s,
        "run_timeout": run_timeout_s,
        "memory_limit_MB": memory_limit_mb,
        "files": {},
        "fetch_files": [],
    }
    wait_s = compile_timeout_s + run_timeout_s + api_timeout_s
    run = SandboxRun("api_error", error="never asked")
    for attempt in range(1, max_retries + 2):
        run = _ask(url, payload, wait_s, attempt)
        if not run.infrastructure_failed or attempt > max_retries:
            break
        time.sleep(retry_delay_s * 2 ** (attempt - 1))
    if run.infrastructure_failed:
        logger.warning("sandbox %s: %s after %d attempts (%s)", url, run.status, run.attempts, run.error)
    return run


def _ask(url: str, payload: dict[str, Any], wait_s: float, attempt: int) -> SandboxRun:
    try:
        response = requests.post(
            url,
            data=json.dumps(payload, ensure_ascii=False).encode("utf-8", errors="surrogatepass"),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            timeout=wait_s,
        )
    except requests.exceptions.Timeout as error:
        return SandboxRun("api_timeout", error=f"no answer within {wait_s:g} s ({error})", attempts=attempt)
    except requests.exceptions.RequestException as error:
        return SandboxRun("api_error", error=str(error), attempts=attempt)
    if response.status_code in _RETRY_STATUS:
        return SandboxRun("api_error", error=f"HTTP {response.status_code}", attempts=attempt)
    try:
        response.raise_for_status()
        answer = json.loads(response.content)
    except (requests.exceptions.HTTPError, ValueError) as error:
        return SandboxRun("api_error", error=f"no usable answer: {error}", attempts=attempt)
    if not isinstance(answer, dict) or "status" not in answer:
        return SandboxRun("api_error", error="the answer has no status", attempts=attempt)
    return read_answer(answer, attempt)


def read_answer(answer: dict[str, Any], attempts: int = 1) -> SandboxRun:
    """The meaning of one answer of the sandbox."""
    compiled, ran = answer.get("compile_result") or {}, answer.get("run_result") or {}
    last = ran or compiled
    if answer["status"] == "SandboxError":
        status = "sandbox_error"
    elif answer["status"] == "Success":
        status = "success"
    elif compiled.get("status") == "TimeLimitExceeded":
        status = "compile_timeout"
    elif compiled and (compiled.get("status") == "Error" or compiled.get("return_code") not in (0, None)):
        status, last = "compile_error", compiled
    elif ran.get("status") == "TimeLimitExceeded":
        status = "timeout"
    elif ran:
        # Finished with another return code, or stopped by the memory limit.
        status = "run_error"
    else:
        status = "sandbox_error"
    return SandboxRun(
        status=status,
        stdout=last.get("stdout") or "",
        stderr=last.get("stderr") or "",
        return_code=last.get("return_code"),
        execution_time_s=last.get("execution_time"),
        attempts=attempts,
        error=answer.get("message") or None,
        response=answer,
    )


def check_correctness(
    sandbox_fusion_url: str,
    in_outs: dict[str, Any] | None,
    generation: str,
    timeout: int = DEFAULT_TIMEOUT,
    memory_limit_mb: int = 1024,
    language: str = "python",
    concurrent_semaphore: threading.Semaphore | None = None,
    max_concurrent: int = 4,
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Run a program on all its test cases.

    `in_outs` has `inputs` and `outputs`, and `fn_name` where a function is to be called instead of stdin being read.

    Returns
    -------
    For each case True, False, -1 (the sandbox failed), -2 (run-time error), -3 (time limit) or -4 (does not compile);
    and its metadata. After a case that does not compile the others count as not compiling.
    """
    if not in_outs or "inputs" not in in_outs or "outputs" not in in_outs:
        return [SANDBOX_FAILURE], [{"error": "no inputs and outputs to test with", "status": "api_error"}]
    inputs, outputs = in_outs["inputs"], in_outs["outputs"]
    if len(inputs) != len(outputs):
        return [SANDBOX_FAILURE], [{"error": f"{len(inputs)} inputs and {len(outputs)} outputs", "status": "api_error"}]
    broken = threading.Event()

    def judge(index: int) -> tuple[Any, dict[str, Any]]:
        if broken.is_set():
            return COMPILE_ERROR, {"case_index": index, "status": "compile_error_skipped"}
        code, stdin, expected = _program(generation, inputs[index], outputs[index], in_outs.get("fn_name"), language)
        with concurrent_semaphore or contextlib.nullcontext():
            run = run_in_sandbox(
                sandbox_fusion_url, code, stdin=stdin, compile_timeout_s=timeout, run_timeout_s=timeout,
                memory_limit_mb=memory_limit_mb, language=language,
            )  # fmt: skip
        result = _verdict(run, expected)
        if result == COMPILE_ERROR:
            broken.set()
        return result, _metadata(index, run, inputs[index], outputs[index])

    return _judge_all(judge, len(inputs), max_concurrent)


def _judge_all(
    judge: Callable[[int], tuple[Any, dict[str, Any]]], count: int, max_concurrent: int
) -> tuple[list[Any], list[dict[str, Any]]]:
    with concurrent.futures.ThreadPoolExecutor(max(1, min(count, max_concurrent))) as threads:
        judged = list(threads.map(judge, range(count)))
    results, metadata = [result for result, _ in judged], [facts for _, facts in judged]
    if COMPILE_ERROR in results:
        # Cases side by side may have finished before; a program that does not compile has passed none.
        first = results.index(COMPILE_ERROR)
        results[first:] = [COMPILE_ERROR] * (count - first)
    return results, metadata


def _program(
    generation: str, case_input: Any, expected: Any, fn_name: str | None, language: str
) -> tuple[str, str | None, Any]:
    """(code, stdin, what it should write) of one case."""
    if fn_name and language == "python":
        return call_harness(generation, fn_name, case_input), None, expected
    return generation, None if case_input is None else stream_text(case_input), stream_text(expected)


def _verdict(run: SandboxRun, expected: Any) -> Any:
    if run.infrastructure_failed:
        return SANDBOX_FAILURE
    if run.status in ("compile_error", "compile_timeout"):
        return COMPILE_ERROR
    if run.status == "timeout":
        return TIMEOUT
    if run.status != "success" or run.return_code not in (0, None):
        return RUNTIME_ERROR
    return outputs_match(run.stdout, expected)


def _metadata(index: int, run: SandboxRun, case_input: Any, expected: Any) -> dict[str, Any]:
    return {
        "case_index": index,
        "status": run.status,
        "input": str(case_input)[:200],
        "expected_output": str(expected)[:200],
        "stdout": run.stdout[:200],
        "stderr": run.stderr[:200],
        "exit_code": run.return_code,
        "duration": run.execution_time_s,
        "attempts": run.attempts,
        "api_request_error": run.error if run.infrastructure_failed else None,
    }
