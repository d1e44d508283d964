# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the trainer takes: whole batches with their age, an error where the rollouter failed, no standstill of the loop.

The queue is the real one, without Ray around it; the rollouter's handle only notes what it is told.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from verl.errors import WaitTimeout
from verl.experimental.agent_loop.trajectory import Trajectory, describe_group
from verl.experimental.fully_async_policy.detach_utils import RolloutSample
from verl.experimental.fully_async_policy.message_queue import MessageQueueCore, RolloutFailed
from verl.experimental.fully_async_policy.take_from_queue import TakeFromQueue
from verl.protocol import DataProto


class Rollouter:
    """Every message as Ray's handle has it: `handle.note_taken.remote(uids)`."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        async def remote(*args: Any) -> None:
            self.told.append((name, *args))

        return SimpleNamespace(remote=remote)


def group(uid: str, version: int) -> RolloutSample:
    trajectory = Trajectory(
        uid=uid,
        prompt_ids=np.array([1, 2], dtype=np.int32),
        response_ids=np.array([3, 4], dtype=np.int32),
        response_mask=np.array([True, True]),
        log_probs=np.zeros(2, dtype=np.float32),
        token_versions=np.full(2, version, dtype=np.int32),
        reward_score=1.0,
    )
    payload: asyncio.Future[list[Trajectory]] = asyncio.get_running_loop().create_future()
    payload.set_result([trajectory])
    return RolloutSample(uid, 0, version, describe_group(uid, [trajectory]), (payload,))


def taker(required: int, dp_size: int = 1, mini: int = 1, stall_s: float = 30.0) -> TakeFromQueue:
    rollout = {"n": 1, "prompt_length": 2, "response_length": 2, "temperature": 1.0}
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": rollout, "actor": {"ppo_mini_batch_size": mini}},
            "async_training": {"max_version_lag": None, "stall_timeout_s": stall_s},
            "trainer": {"balance_batch": True},
        }
    )
    queue = MessageQueueCore(max_queue_size=32)
    return TakeFromQueue(config, queue, Rollouter(), required=required, pad_token_id=0, dp_size=dp_size)


def run(scenario: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(scenario())


def test_the_age_of_a_batch_is_measured_against_the_version_in_training() -> None:
    async def scenario() -> tuple[DataProto, dict[str, Any], TakeFromQueue]:
        source, metrics = taker(2), {}
        for uid, version in (("new", 2), ("old", 0)):
            await source.queue.put_sample(group(uid, version))
        source.version = 2
        batch = await source.next_batch(1, metrics)
        await source.trained(1)
        return batch, metrics, source

    batch, metrics, source = run(scenario)
    assert batch.non_tensor_batch["uid"].tolist() == ["old", "new"]
    assert metrics["fully_async/staleness/trajectory_age_max"] == metrics["fully_async/staleness/token_age_max"] == 2
    assert metrics["fully_async/staleness/token_age_mean"] == 1.0
    assert metrics["fully_async/count/stale_trajectory_processed"] == 1
    assert source.rollouter.told == [("note_taken", ["old", "new"]), ("note_trained", ["old", "new"])]


@pytest.mark.parametrize(("mini", "rows"), [(6, 12), (10, 20)])
def test_a_batch_is_filled_up_for_ranks_and_mini_batches_at_once(mini: int, rows: int) -> None:
    async def scenario() -> DataProto:
        source = taker(10, dp_size=4, mini=mini)
        for index in range(10):
            await source.queue.put_sample(group(str(index), 0))
        return await source.next_batch(1, {})

    batch = run(scenario)
    assert len(batch) == rows
    assert batch.batch["response_mask"].sum() == 10 * 2, "the rows that fill up carry no token"


def test_a_failure_of_the_rollouter_is_the_trainers_error_with_its_cause() -> None:
    async def scenario() -> None:
        source = taker(2)
        await source.queue.put_sample(group("a", 0))
        await source.queue.close("RuntimeError: injected", failed=True)
        await source.next_batch(1, {})

    with pytest.raises(RolloutFailed, match="injected"):
        run(scenario)


def test_groups_that_fill_no_batch_at_the_end_of_the_data_are_left_out_by_name() -> None:
    async def scenario() -> tuple[Any, list[tuple[Any, ...]]]:
        source = taker(2)
        await source.queue.put_sample(group("a", 0))
        await source.queue.close("all prompts are generated")
        return await source.next_batch(1, {}), source.rollouter.told

    batch, told = run(scenario)
    assert batch is None
    assert told == [("note_taken", ["a"]), ("note_dropped", ["a"], "end of data, batch incomplete")]


def test_the_loop_runs_on_while_the_trainer_waits_and_a_standstill_names_the_rollouter() -> None:
    async def scenario() -> int:
        source = taker(2, stall_s=0.5)
        beats = 0

        async def heartbeat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.05)
                beats += 1

        beating = asyncio.create_task(heartbeat())
        with pytest.raises(WaitTimeout, match=r"the rollouter.*stall_timeout_s"):
            await source.next_batch(1, {})
        beating.cancel()
        return beats

    # Were the wait a blocking one, not one beat would fit in.
    assert run(scenario) >= 3
