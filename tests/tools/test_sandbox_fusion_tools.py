# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Fix 6: one execution pool and one limiter per job; the tool against a server that speaks the protocol."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import ray

from verl.errors import ConfigError, UnsupportedError
from verl.tools import sandbox_fusion_tools
from verl.tools.sandbox_fusion_tools import (
    ExecutionWorker,
    PoolMode,
    SandboxFusionTool,
    TokenBucketWorker,
    init_execution_pool,
    shorten,
)
from verl.tools.schemas import ToolResponse
from verl.utils.reward_score.sandbox_fusion import utils as protocol


@pytest.fixture(scope="module")
def pool(ray_cluster: None) -> Iterator[Any]:
    """The job's pool, at most two calls at once; both named actors are gone afterwards, as after a job."""
    actor = init_execution_pool(num_workers=8, rate_limit=2)
    yield actor
    for name in ("sandbox-execution-pool", sandbox_fusion_tools.LIMITER_NAME):
        ray.kill(ray.get_actor(name))


def make_tool(url: str, **config: Any) -> SandboxFusionTool:
    options = {"sandbox_fusion_url": url, "num_workers": 8, "rate_limit": 2, "default_timeout": 5}
    return SandboxFusionTool(options | config)


def execute(tool: SandboxFusionTool, parameters: dict[str, Any]) -> tuple[ToolResponse, Any, dict[str, Any]]:
    async def run() -> Any:
        instance, _ = await tool.create()
        try:
            return await tool.execute(instance, parameters)
        finally:
            await tool.release(instance)

    return asyncio.run(run())


def test_all_workers_of_a_job_share_one_named_pool_in_the_jobs_namespace(pool: Any) -> None:
    @ray.remote(num_cpus=0)
    def pool_of_another_process() -> str:
        return init_execution_pool(num_workers=4)._actor_id.hex()

    assert ray.get_actor("sandbox-execution-pool")._actor_id == pool._actor_id
    assert init_execution_pool(num_workers=4)._actor_id == pool._actor_id
    assert ray.get(pool_of_another_process.remote(), timeout=120) == pool._actor_id.hex()


def test_two_jobs_on_one_cluster_have_pools_of_their_own(pool: Any) -> None:
    ray.get(pool.ping.remote(), timeout=120)
    address = ray.get_runtime_context().gcs_address
    script = (
        f"import ray; ray.init(address={address!r}, log_to_driver=False)\n"
        "from verl.tools.sandbox_fusion_tools import init_execution_pool\n"
        "pool = init_execution_pool(2); ray.get(pool.ping.remote(), timeout=120); print(pool._actor_id.hex())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] != pool._actor_id.hex()
    # The other job's end took nothing of ours.
    assert ray.get(pool.ping.remote(), timeout=60)


def test_the_limit_holds_for_all_workers_together(pool: Any) -> None:
    lock = threading.Lock()
    running = peak = 0

    def measured() -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.1)
        with lock:
            running -= 1

    # Workers outside the pool meet the same limiter.
    workers = [ExecutionWorker(True, 2) for _ in range(4)]
    with ThreadPoolExecutor(12) as threads:
        list(threads.map(lambda index: workers[index % 4].execute(measured), range(12)))
    assert peak == 2


def test_a_slot_is_free_again_after_an_exception(pool: Any) -> None:
    def fail() -> None:
        raise ValueError("injected")

    for _ in range(3):
        with pytest.raises(ValueError, match="injected"):
            ray.get(pool.execute.remote(fail), timeout=60)
    assert ray.get(pool.execute.remote(lambda: 5), timeout=60) == 5
    limiter = ray.get_actor(sandbox_fusion_tools.LIMITER_NAME)
    deadline = time.monotonic() + 10
    while ray.get(limiter.get_current_count.remote()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ray.get(limiter.get_current_count.remote()) == 0


def test_the_limiter_grants_no_slot_to_one_who_has_given_up() -> None:
    async def run() -> None:
        limiter = TokenBucketWorker(1)
        assert await limiter.acquire()
        assert not await limiter.acquire(0.05)
        assert await limiter.get_current_count() == 1
        await limiter.release()
        # One release too many does not widen the limit.
        await limiter.release()
        assert await limiter.acquire(0.05)
        assert not await limiter.acquire(0.05)

    asyncio.run(run())


def test_process_mode_and_a_missing_url_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="ThreadMode"):
        init_execution_pool(1, mode=PoolMode.ProcessMode)
    with pytest.raises(ConfigError, match="no sandbox"):
        SandboxFusionTool({})


def test_the_tool_answers_with_what_the_program_prints(pool: Any, sandbox: Any) -> None:
    tool = make_tool(sandbox.url)
    response, reward, metrics = execute(tool, {"code": "print('grüße 你好 🙂')"})
    assert response.text == "grüße 你好 🙂\n" and reward is None
    assert metrics == {"status": "success", "attempts": 1, "infrastructure_failed": False}
    failed, _, metrics = execute(tool, {"code": "print('before')\nraise SystemExit(3)"})
    assert failed.text == "before\nThe program ended with return code 3." and metrics["status"] == "run_error"
    slow, _, metrics = execute(tool, {"code": "while True: pass", "timeout": 1})
    assert "longer than 1 s" in slow.text and metrics["status"] == "timeout"


def test_code_that_is_no_text_is_told_to_the_model(pool: Any, sandbox: Any) -> None:
    tool = make_tool(sandbox.url)
    for parameters in ({"code": 123}, {}, {"code": None}, {"code": ["a"]}):
        response, _, metrics = execute(tool, parameters)
        assert response.text.startswith("Error: the argument `code`") and metrics == {"status": "no_code"}
    assert not sandbox.requests


def test_a_huge_output_is_cut_before_anybody_tokenises_it(pool: Any, sandbox: Any) -> None:
    tool = make_tool(sandbox.url, max_output_chars=1000)
    response, _, _ = execute(tool, {"code": "print('a' + 'x' * 50_000_000 + 'z')", "timeout": 60})
    assert len(response.text) <= 1000
    assert response.text.startswith("ax") and response.text.endswith("xz\n")
    assert "50000003 characters in all" in response.text


@pytest.mark.parametrize("limit", [0, 1, 5, 40, 99])
def test_shortened_text_never_exceeds_its_limit(limit: int) -> None:
    assert len(shorten("x" * 100, limit)) <= limit
    assert shorten("x" * 100, 100) == "x" * 100


@pytest.mark.parametrize(
    ("answer", "text"), [(ToolResponse(text="inner"), "inner"), ("plain", "plain"), (None, None), (3, "3")]
)
def test_a_response_is_never_wrapped_twice(pool: Any, answer: Any, text: str | None) -> None:
    class Custom(SandboxFusionTool):
        def execute_code(self, instance_id: str, code: str, timeout: float = 30, language: str = "python") -> Any:
            return answer

    response, _, _ = execute(Custom({"sandbox_fusion_url": "http://unused"}), {"code": "1"})
    assert isinstance(response, ToolResponse) and response.text == text


@pytest.mark.parametrize("faults", [["sandbox_error", "sandbox_error"], ["sandbox_error", "http_504"]])
def test_an_internal_error_of_the_sandbox_is_tried_again(sandbox: Any, faults: list[str]) -> None:
    sandbox.faults = list(faults)
    run = protocol.run_in_sandbox(sandbox.url, "print(1)", retry_delay_s=0.01)
    assert (run.status, run.stdout, run.attempts) == ("success", "1\n", 3)


@pytest.mark.parametrize(
    ("fault", "status"),
    [("sandbox_error", "sandbox_error"), ("not_json", "api_error"), ("no_status", "api_error"), ("drop", "api_error")],
)
def test_a_sandbox_that_stays_broken_is_not_a_wrong_program(sandbox: Any, fault: str, status: str) -> None:
    sandbox.faults = [fault] * 10
    run = protocol.run_in_sandbox(sandbox.url, "print(1)", max_retries=2, retry_delay_s=0.01)
    assert run.status == status and run.infrastructure_failed and run.attempts == 3
    broken = protocol.run_in_sandbox(sandbox.url.replace(str(sandbox.server.server_port), "9"), "1", max_retries=0)
    assert broken.status == "api_error"
    wrong = protocol.read_answer(
        {"status": "Failed", "run_result": {"status": "Finished", "return_code": 1, "stdout": "", "stderr": "E"}}
    )
    assert wrong.status == "run_error" and not wrong.infrastructure_failed


def test_slow_answers_end_each_call_by_its_deadline_and_block_no_loop(pool: Any, sandbox: Any) -> None:
    sandbox.delay_s = 3.0
    tool = make_tool(sandbox.url, default_timeout=1)
    gaps: list[float] = []

    async def heartbeat() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            gaps.append(time.monotonic() - before)

    async def run() -> list[Any]:
        beat = asyncio.create_task(heartbeat())
        calls = [tool.execute(str(index), {"code": f"print({index})"}) for index in range(8)]
        try:
            return await asyncio.gather(*calls)
        finally:
            beat.cancel()

    answers = asyncio.run(run())
    assert [response.text for response, _, _ in answers] == [f"{index}\n" for index in range(8)]
    assert sandbox.peak <= 2
    assert gaps and max(gaps) < 0.5
    # A client that waits shorter than the sandbox takes says that nobody answered, not that the program was slow.
    run_result = protocol.run_in_sandbox(
        sandbox.url, "print(1)", compile_timeout_s=0.1, run_timeout_s=0.1, api_timeout_s=0.3, max_retries=0
    )
    assert run_result.status == "api_timeout"
