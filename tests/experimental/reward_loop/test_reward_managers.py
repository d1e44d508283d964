# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Built-in reward managers: penalties, several rewards, quotas."""

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop_parts import make_config, make_row

from verl.errors import ConfigError, DataError, RewardError, WaitTimeout
from verl.experimental.reward_loop.reward_manager import (
    DAPORewardManager,
    GDPORewardManager,
    NaiveRewardManager,
    RateLimitedRewardManager,
    get_reward_manager_cls,
)
from verl.experimental.reward_loop.reward_manager.dapo import overlong_penalty
from verl.experimental.reward_loop.reward_manager.limited import AsyncTokenBucket
from verl.experimental.reward_loop.sample import RewardSample
from verl.protocol import DataProto


def sample(length: int = 3, **row: Any) -> RewardSample:
    return RewardSample(row=make_row("q", "7", **row), response_str="7", response_length=length, uid="u", num_turns=2)


def run(manager: Any, *samples: RewardSample) -> list[dict[str, Any]]:
    async def body() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(manager.run_sample(one) for one in samples or (sample(),))))

    return asyncio.run(body())


def test_naive_takes_plain_and_coroutine_functions_and_passes_the_router(tmp_path: Path) -> None:
    def plain(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> bool:
        return solution_str == ground_truth

    async def judged(**arguments: Any) -> dict[str, Any]:
        return {"score": 0.5, "router": arguments["reward_router_address"]}

    config = make_config(tmp_path)
    assert run(NaiveRewardManager(config, None, plain)) == [{"reward_score": 1.0, "reward_extra_info": {"acc": 1.0}}]
    manager = NaiveRewardManager(config, None, judged, reward_router_address="host:1", reward_model_tokenizer="t")
    assert run(manager)[0]["reward_extra_info"] == {"score": 0.5, "router": "host:1"}


def test_a_row_of_a_batch_is_scored_by_the_tokens_under_its_mask(tmp_path: Path) -> None:
    import torch

    class Letters:
        def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
            return "".join(chr(96 + token) for token in ids)

    seen: dict[str, Any] = {}

    def record(**arguments: Any) -> float:
        seen.update(arguments)
        return 1.0

    row = make_row("q", "7")
    data = DataProto.from_dict(
        tensors={
            "prompts": torch.tensor([[0, 1, 2]]),
            "responses": torch.tensor([[3, 4, 0]]),
            "attention_mask": torch.tensor([[0, 1, 1, 1, 1, 0]]),
        },
        non_tensors={key: np.array([value], dtype=object) for key, value in row.items() if key != "raw_prompt"}
        | {"__num_turns__": np.array([4], dtype=object), "tool_extra_fields": np.array([{"k": 1}], dtype=object)},
    )
    manager = NaiveRewardManager(make_config(tmp_path), Letters(), record)
    assert asyncio.run(manager.run_single(data))["reward_score"] == 1.0
    assert seen["solution_str"] == "cd" and seen["ground_truth"] == "7"
    assert seen["extra_info"] == {"index": 0, "k": 1, "num_turns": 4, "rollout_reward_scores": {}}
    with pytest.raises(DataError, match="2 rows"):
        asyncio.run(manager.run_single(DataProto.concat([data, data])))


def dapo(tmp_path: Path, max_resp_len: int | None, **buffer: Any) -> DAPORewardManager:
    kwargs = {"reward.reward_kwargs": {"max_resp_len": max_resp_len, "overlong_buffer_cfg": buffer or None}}
    return DAPORewardManager(make_config(tmp_path, **kwargs), None, lambda **_: 1.0)


def test_the_penalty_grows_linearly_over_the_buffer(tmp_path: Path) -> None:
    manager = dapo(tmp_path, 10, enable=True, len=4, penalty_factor=1.0, log=True)
    results = run(manager, sample(6), sample(8), sample(10))
    assert [result["reward_score"] for result in results] == [1.0, 0.5, 0.0]
    assert results[1]["reward_extra_info"] == {"acc": 1.0, "overlong_reward": -0.5, "overlong": True}
    assert results[0]["reward_extra_info"]["overlong"] is False
    # DAPO's eq. 13 scaled by the factor, in float64.
    lengths = np.arange(1, 21)
    expected = np.minimum(-(lengths - (20 - 5)) / 5 * 2.5, 0.0)
    assert [overlong_penalty(int(length), 20, 5, 2.5) for length in lengths] == pytest.approx(expected.tolist())


def test_lengths_are_checked_only_where_the_penalty_is_on(tmp_path: Path) -> None:
    assert run(dapo(tmp_path, None, enable=False, len=0))[0]["reward_score"] == 1.0
    assert run(dapo(tmp_path, None))[0]["reward_score"] == 1.0
    with pytest.raises(ConfigError, match=r"overlong_buffer_cfg\.len"):
        dapo(tmp_path, 10, enable=True, len=0)
    with pytest.raises(ConfigError, match="max_resp_len"):
        dapo(tmp_path, None, enable=True, len=4)
    with pytest.raises(ConfigError, match="between 1 and max_resp_len=10"):
        dapo(tmp_path, 10, enable=True, len=11)


def test_gdpo_needs_every_reward_it_weighs(tmp_path: Path) -> None:
    config = make_config(tmp_path, **{"algorithm.gdpo_reward_keys": ["acc", "format"]})
    whole = GDPORewardManager(config, None, lambda **_: {"score": 1.5, "acc": 1, "format": np.float32(0.5)})
    assert run(whole)[0] == {"reward_score": 1.5, "reward_extra_info": {"score": 1.5, "acc": 1.0, "format": 0.5}}
    with pytest.raises(RewardError, match=r"gdpo_reward_keys.*format"):
        run(GDPORewardManager(config, None, lambda **_: {"score": 1.0, "acc": 1.0}))


@pytest.fixture
def fresh_limits() -> Any:
    RateLimitedRewardManager._class_initialized = False
    yield
    RateLimitedRewardManager._class_initialized = False


def test_at_most_so_many_calls_at_once(tmp_path: Path, fresh_limits: Any) -> None:
    running = peak = 0

    async def judged(**_: Any) -> float:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.02)
        running -= 1
        return 1.0

    manager = RateLimitedRewardManager(make_config(tmp_path, **{"reward.max_concurrent": 2}), None, judged)
    assert len(run(manager, *[sample()] * 7)) == 7 and peak == 2


def test_a_slow_service_is_a_timeout_and_frees_its_slot(tmp_path: Path, fresh_limits: Any) -> None:
    async def judged(**_: Any) -> float:
        await asyncio.sleep(30)
        return 1.0

    config = make_config(tmp_path, **{"reward.max_concurrent": 1, "reward.timeout": 0.05})
    manager = RateLimitedRewardManager(config, None, judged)

    async def body() -> list[Any]:
        return await asyncio.gather(*(manager.run_sample(sample()) for _ in range(3)), return_exceptions=True)

    assert [type(result) for result in asyncio.run(body())] == [WaitTimeout] * 3


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    async def body() -> list[float]:
        bucket = AsyncTokenBucket(rate_limit=50.0, max_tokens=5)
        started, times = time.monotonic(), []
        for _ in range(10):
            await bucket.acquire()
            times.append(time.monotonic() - started)
        return times

    times = asyncio.run(body())
    # Five at once; each further one a fiftieth of a second after the one before. Only lower bounds: machines stall.
    assert all(later >= 0.02 * (index + 1) * 0.9 for index, later in enumerate(times[5:]))


def test_a_request_larger_than_a_burst_is_paid_off_and_not_refused() -> None:
    async def body() -> float:
        bucket = AsyncTokenBucket(rate_limit=100.0, max_tokens=5)
        await bucket.acquire(10)
        started = time.monotonic()
        await bucket.acquire(1)
        return time.monotonic() - started

    assert asyncio.run(body()) >= 0.05
    with pytest.raises(ConfigError):
        AsyncTokenBucket(0)


def test_the_registry_knows_all_of_them() -> None:
    names = ("naive", "dapo", "gdpo", "rate_limited", "remote", "batch", "prime")
    assert all(get_reward_manager_cls(name) for name in names)
    with pytest.raises(ConfigError, match="did you mean 'dapo'"):
        get_reward_manager_cls("dapoo")


@pytest.mark.usefixtures("ray_cluster")
def test_remote_scores_on_actors_where_a_hung_call_is_killed(tmp_path: Path) -> None:
    def slow_for_some(solution_str: str, extra_info: dict[str, Any], **arguments: Any) -> float:
        while extra_info.get("index") == "hang":
            pass
        return float(solution_str)

    config = make_config(tmp_path, **{"reward.timeout": 1.0, "reward.reward_kwargs": {"num_remote_workers": 2}})
    manager = get_reward_manager_cls("remote")(config, None, slow_for_some)
    assert len(manager.reward_worker) == 2

    async def body() -> list[Any]:
        samples = [sample(extra_info={"index": index}) for index in (0, "hang", 2, 3)]
        return await asyncio.gather(*(manager.run_sample(one) for one in samples), return_exceptions=True)

    first, hung, *others = asyncio.run(body())
    assert [answer["reward_score"] for answer in (first, *others)] == [7.0, 7.0, 7.0]
    assert isinstance(hung, RewardError) and "within 1 s" in str(hung)
