# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reward functions in processes that are really killed."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from verl.errors import ConfigError, RewardError
from verl.experimental.reward_loop.score_pool import CallTimeout, ScorePool, function_spec


def answer(x: Any) -> float:
    """Scores x; some words misbehave."""
    if x == "regex":
        # Held inside one C call: no signal handler and no thread of this process could end it.
        re.match(r"(a+)+$", "a" * 60 + "b")
    if x == "child":
        subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"], check=False)
    if x == "raise":
        raise ValueError("injected")
    if x == "die":
        os._exit(9)
    if x == "slow":
        time.sleep(0.5)
        return 5.0
    return float(x)


async def answer_async(x: Any) -> dict[str, float]:
    if x == "block":
        time.sleep(600)
    if x == "hang":
        await asyncio.sleep(600)
    if x == "deep":
        # The blocking code runs in a task of its own.
        await asyncio.gather(answer_async("block"))
    if x == "stubborn":
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                continue
    if x == "own timeout":
        raise TimeoutError("the service is slow")
    await asyncio.sleep(0.05)
    return {"score": float(x), "note": 1}


def with_pool(body: Callable[[ScorePool], Awaitable[Any]], function: Any = answer, **options: Any) -> Any:
    async def run() -> Any:
        pool = ScorePool(function_spec(function), **options)
        try:
            return await body(pool)
        finally:
            await pool.close()

    return asyncio.run(run())


async def ask(pool: ScorePool, *values: Any) -> list[Any]:
    return await asyncio.gather(*(pool.call(x=value) for value in values), return_exceptions=True)


def scores(results: list[Any]) -> list[Any]:
    return [result[0] if isinstance(result, tuple) else type(result).__name__ for result in results]


def test_a_hung_regex_is_killed_and_the_others_are_scored_once() -> None:
    async def body(pool: ScorePool) -> Any:
        await pool.start()
        started = time.monotonic()
        results = await ask(pool, 1, 2, "regex", 4)
        return results, time.monotonic() - started, pool

    results, seconds, pool = with_pool(body, timeout_s=1.0)
    assert scores(results) == [1.0, 2.0, "CallTimeout", 4.0]
    assert "within 1 s" in str(results[2]) and "reward.timeout" in str(results[2])
    assert (pool.timeouts, pool.kills) == (1, 1)
    assert seconds < 20


def sleeps(x: Any) -> float:
    """Does not come back for 2."""
    time.sleep(60 if x == 2 else 0)
    return 1.0


async def sleeps_async(x: Any) -> float:
    """The same without holding its process."""
    await asyncio.sleep(60 if x == 2 else 0)
    return 1.0


@pytest.mark.parametrize("function", [sleeps, sleeps_async])
def test_a_timeout_holds_in_any_thread_and_only_for_its_sample(function: Any) -> None:
    async def body(pool: ScorePool) -> Any:
        return await ask(pool, 0, 1, 2, 3), pool.timeouts

    with ThreadPoolExecutor(1) as thread:
        results, timeouts = thread.submit(with_pool, body, function, timeout_s=1.0).result(timeout=50)
    assert scores(results) == [1.0, 1.0, "CallTimeout", 1.0] and timeouts == 1


def test_what_the_function_started_is_killed_with_it() -> None:
    async def body(pool: ScorePool) -> list[int]:
        await pool.start()
        call = asyncio.create_task(pool.call(x="child"))
        deadline = time.monotonic() + 20
        while not (sleepers := children_of(pool)) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        with pytest.raises(CallTimeout):
            await call
        return sleepers

    sleepers = with_pool(body, timeout_s=3.0)
    assert sleepers
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in sleepers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in sleepers)


def children_of(pool: ScorePool) -> list[int]:
    """Process ids that scoring processes have started."""
    scorers = {str(scorer.pid) for scorer in pool._busy}
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] in scorers:
            found.append(int(stat.parent.name))
    return found


def test_an_error_says_what_and_where_and_a_dead_process_is_replaced() -> None:
    async def body(pool: ScorePool) -> Any:
        return await ask(pool, "raise", "die", 3), await ask(pool, 4)

    (failed, died, fine), (after,) = with_pool(body, timeout_s=30.0)
    assert type(failed) is RewardError and re.search(r"ValueError: injected \(.*:\d+\)", str(failed))
    assert type(died) is RewardError and "died under the call" in str(died)
    assert fine[0] == 3.0 and after[0] == 4.0


def test_cheap_calls_share_a_process_and_slow_ones_get_more() -> None:
    async def body(pool: ScorePool) -> Any:
        await pool.start()
        await ask(pool, *range(200))
        cheap = len(pool._idle)
        await ask(pool, *["slow"] * 8)
        return cheap, len(pool._idle)

    cheap, slow = with_pool(body, max_processes=8)
    assert cheap < 8 and slow > cheap


def test_no_limit_where_the_timeout_is_null() -> None:
    async def body(pool: ScorePool) -> Any:
        return await ask(pool, "slow")

    assert scores(with_pool(body, timeout_s=None)) == [5.0]


def test_throughput_is_the_same_after_a_kill() -> None:
    async def body(pool: ScorePool) -> list[float]:
        await pool.start()
        rates = []
        for _ in range(2):
            started = time.monotonic()
            assert scores(await ask(pool, *range(100))) == [float(x) for x in range(100)]
            rates.append(100 / (time.monotonic() - started))
            await ask(pool, "regex")
        return rates

    before, after = with_pool(body, timeout_s=0.5)
    assert before > 0 and after > 0
    sys.stderr.write(f"scores per second before a kill {before:.0f}, after it {after:.0f}\n")


@pytest.mark.parametrize(("word", "fate"), [("hang", 0), ("block", 1), ("deep", 1), ("stubborn", 1)])
def test_a_coroutine_that_hangs_or_blocks_takes_only_itself(word: str, fate: int) -> None:
    async def body(pool: ScorePool) -> Any:
        await pool.start()
        return await ask(pool, 1, word, 3, 4), pool

    results, pool = with_pool(body, answer_async, timeout_s=2.0)
    assert scores(results) == [1.0, "CallTimeout", 3.0, 4.0]
    assert results[0][1] == {"score": 1.0, "note": 1}
    assert (pool.timeouts, pool.kills) == (1, fate)


def test_a_timeout_of_the_functions_own_is_an_error_and_no_deadline() -> None:
    async def body(pool: ScorePool) -> Any:
        return await ask(pool, "own timeout")

    (result,) = with_pool(body, answer_async, timeout_s=30.0)
    assert type(result) is RewardError and "the service is slow" in str(result)


def test_a_file_is_loaded_once_however_many_processes_score(tmp_path: Path) -> None:
    log = tmp_path / "loads"
    path = tmp_path / "my reward-function.py"
    path.write_text(
        f"open({str(log)!r}, 'a').write('x')\n"
        "import time\n"
        "def compute_score(x, factor=1):\n    time.sleep(0.2)\n    return x * factor\n"
    )

    async def run() -> Any:
        pool = ScorePool(function_spec(path=str(path), name="compute_score", kwargs={"factor": 3}), timeout_s=30.0)
        try:
            results = await ask(pool, *range(6))
            return results, len(pool._idle)
        finally:
            await pool.close()

    results, processes = asyncio.run(run())
    assert scores(results) == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]
    assert processes > 1 and log.read_text() == "x"


@pytest.mark.parametrize(("name", "text"), [("absent", "it defines: compute"), ("compute", "SyntaxError|no such|boom")])
def test_a_function_that_cannot_be_loaded_is_an_error_before_any_call(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "reward.py"
    path.write_text("def compute(): pass\n" + ("raise RuntimeError('boom')\n" if name == "compute" else ""))

    async def run() -> None:
        await ScorePool(function_spec(path=str(path), name=name)).start()

    with pytest.raises(ConfigError, match=text):
        asyncio.run(run())


def test_the_processes_end_with_the_one_that_uses_them(tmp_path: Path) -> None:
    script = (
        "import asyncio, os\n"
        "from verl.experimental.reward_loop.score_pool import ScorePool, function_spec\n"
        "async def main():\n"
        "    pool = ScorePool(function_spec(lambda x: float(x)))\n"
        "    await pool.call(x=1)\n"
        "    print(pool._template._process.pid, *[s.pid for s in pool._idle], flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    pids = done.stdout.split()
    assert len(pids) == 2 and done.returncode == -9
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_cancelled_call_leaves_no_process_behind_that_still_works() -> None:
    async def body(pool: ScorePool) -> Any:
        await pool.start()
        call = asyncio.create_task(pool.call(x="regex"))
        while not pool._busy:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        return len(pool._busy), len(pool._idle), scores(await ask(pool, 2))

    assert with_pool(body) == (0, 0, [2.0])
