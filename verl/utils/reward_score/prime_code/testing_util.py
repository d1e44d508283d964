# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Runs programs in processes with limits on time, memory and file size.

This keeps accidents in bounds (endless loops, full memory); it is no protection against malice. For that, use a
sandbox (`reward.sandbox_fusion.url`).
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
from enum import Enum
from typing import Any

from verl.utils.reward_score.code_harness import call_harness, outputs_match, stream_text

__all__ = ["CODE_TYPE", "run_program", "run_test", "truncatefn"]

MEMORY_LIMIT_BYTES = 2 << 30
MAX_FILE_BYTES = 16 << 20
MAX_OUTPUT_BYTES = 4 << 20

RUNTIME_ERROR, COMPILE_ERROR = -1, -2


class CODE_TYPE(Enum):
    """How a program is tested."""

    call_based = 0
    standard_input = 1


def run_test(
    in_outs: dict[str, Any], test: str | None = None, debug: bool = False, timeout: float = 15
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Run `test` on each case of `in_outs`.

    Returns
    -------
    For each case True, False, -1 (run-time error or time limit) or -2 (does not compile), and its metadata.
    """
    if test is None:
        return [RUNTIME_ERROR], [{"error": "no program"}]
    count = len(in_outs["inputs"])
    try:
        compile(test, "solution.py", "exec")
    except (SyntaxError, ValueError) as error:
        return [COMPILE_ERROR] * count, [{"error": repr(error), "error_message": "does not compile"}] * count
    judged = [
        _judge(test, case_input, expected, in_outs.get("fn_name"), timeout)
        for case_input, expected in zip(in_outs["inputs"], in_outs["outputs"], strict=True)
    ]
    return [result for result, _ in judged], [facts for _, facts in judged]


def _judge(
    code: str, case_input: Any, expected: Any, fn_name: str | None, timeout_s: float
) -> tuple[Any, dict[str, Any]]:
    if fn_name:
        program, stdin = call_harness(code, fn_name, case_input), ""
    else:
        program, stdin, expected = code, stream_text(case_input), stream_text(expected)
    return_code, stdout, stderr = run_program(program, stdin, timeout_s)
    facts = {"output": truncatefn(stdout), "expected": truncatefn(str(expected)), "inputs": truncatefn(str(case_input))}
    if return_code is None:
        return RUNTIME_ERROR, facts | {"error_message": "time limit"}
    if return_code != 0:
        return RUNTIME_ERROR, facts | {"error": truncatefn(stderr[-300:]), "error_message": "run-time error"}
    return outputs_match(stdout, expected), facts


def run_program(code: str, stdin: str, timeout_s: float) -> tuple[int | None, str, str]:
    """(return code or None after the time limit, stdout, stderr) of a Python program in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="verl-code-") as directory:
        # In files: an argument of a command ends at 128 KiB, which a test case's input alone may have.
        for name, text in (("stdin", stdin), ("solution.py", code)):
            with open(f"{directory}/{name}", "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(text)
        with (
            open(f"{directory}/stdin", "rb") as source,
            open(f"{directory}/out", "w+b") as out,
            open(f"{directory}/err", "w+b") as err,
        ):
            process = subprocess.Popen(
                [sys.executable, "-I", "solution.py"],
                stdin=source,
                stdout=out,
                stderr=err,
                cwd=directory,
                env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", "HOME": directory},
                start_new_session=True,
                preexec_fn=lambda: _limit(timeout_s),
            )
            try:
                return_code: int | None = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return_code = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            return return_code, _read(out), _read(err)


def _limit(timeout_s: float) -> None:
    """In the new process: what it may use."""
    cpu_s = int(timeout_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read(file: Any) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT_BYTES).decode("utf-8", errors="replace")


def truncatefn(s: Any, length: int = 300) -> str:
    """At most `length` characters, both ends kept."""
    text = str(s)
    return text if len(text) <= length else f"{text[: length // 2]}...(truncated) ...{text[-length // 2 :]}"
