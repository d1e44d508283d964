# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The queue waits instead of evicting, and its end is a state with a reason."""

import asyncio
import threading
from dataclasses import dataclass

import pytest

from verl.errors import ConfigError, WaitTimeout
from verl.experimental.fully_async_policy.message_queue import (
    MessageQueue,
    MessageQueueClient,
    MessageQueueCore,
    QueueClosed,
)


@dataclass
class Sample:
    name: str
    start_version: int = 0


def test_a_full_queue_makes_the_producer_wait_and_loses_nothing() -> None:
    async def scenario() -> None:
        queue = MessageQueueCore(max_queue_size=3)
        for name in "abc":
            assert await queue.put_sample(Sample(name))
        waiting = [asyncio.create_task(queue.put_sample(Sample(name))) for name in "de"]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        assert (await queue.get_statistics())["total_produced"] == 3, "what waits is not yet counted"
        assert [sample.name for sample in await queue.take(2)] == ["a", "b"]
        assert await asyncio.gather(*waiting) == [True, True]
        statistics = await queue.get_statistics()
        assert statistics["total_produced"] == statistics["total_consumed"] + statistics["queue_size"] == 5
        assert (statistics["total_consumed"], statistics["dropped_samples"]) == (2, 0)
        assert [sample.name for sample in await queue.take(3)] == ["c", "d", "e"]

    asyncio.run(scenario())


def test_put_into_a_full_queue_times_out_naming_the_trainer() -> None:
    async def scenario() -> None:
        queue = MessageQueueCore(max_queue_size=1)
        await queue.put_sample(Sample("a"))
        with pytest.raises(WaitTimeout, match="the trainer"):
            await queue.put_sample(Sample("b"), deadline_s=0.05)

    asyncio.run(scenario())


def test_take_is_all_or_nothing_until_the_end_brings_the_remainder_once() -> None:
    async def scenario() -> None:
        queue = MessageQueueCore(max_queue_size=8)
        await queue.put_sample(Sample("a"))
        assert await queue.take(2, slice_s=0.02) == []
        await queue.close("end of data")
        assert [sample.name for sample in await queue.take(2)] == ["a"]
        with pytest.raises(QueueClosed, match="end of data") as caught:
            await queue.take(2)
        assert not caught.value.failed

    asyncio.run(scenario())


def test_a_failure_reaches_the_taker_at_once_even_with_samples_queued() -> None:
    async def scenario() -> None:
        queue = MessageQueueCore(max_queue_size=8)
        await queue.put_sample(Sample("a"))
        await queue.close("end of data")
        await queue.close("RuntimeError: injected", failed=True)
        with pytest.raises(QueueClosed, match="injected") as caught:
            await queue.take(1)
        assert caught.value.failed
        with pytest.raises(QueueClosed, match="injected"):
            await queue.put_sample(Sample("b"))

    asyncio.run(scenario())


def test_groups_from_older_weights_are_taken_first() -> None:
    async def scenario() -> None:
        queue = MessageQueueCore(max_queue_size=8)
        for name, version in (("new", 2), ("old", 1), ("new2", 2), ("old2", 1)):
            await queue.put_sample(Sample(name, version))
        assert [sample.name for sample in await queue.take(4)] == ["old", "old2", "new", "new2"]

    asyncio.run(scenario())


def test_a_queue_built_in_one_thread_works_in_the_loop_of_another() -> None:
    queue = MessageQueueCore(max_queue_size=2)
    result: list[str] = []

    async def scenario() -> None:
        taker = asyncio.create_task(queue.take(1))
        await queue.put_sample(Sample("a"))
        result.extend(sample.name for sample in await taker)

    thread = threading.Thread(target=lambda: asyncio.run(scenario()))
    thread.start()
    thread.join(timeout=10)
    assert result == ["a"]


def test_clearing_is_counted() -> None:
    async def scenario() -> None:
        queue = MessageQueueCore(max_queue_size=2)
        await queue.put_sample(Sample("a"))
        await queue.clear_queue()
        statistics = await queue.get_statistics()
        assert (statistics["queue_size"], statistics["dropped_samples"]) == (0, 1)

    asyncio.run(scenario())


def test_no_size_is_an_error() -> None:
    with pytest.raises(ConfigError, match="positive size"):
        MessageQueueCore(max_queue_size=None)


def test_through_ray_references_pass_without_their_payload(ray_cluster: None) -> None:
    import ray

    async def scenario() -> None:
        client = MessageQueueClient(MessageQueue.remote(None, 4))
        payload = ray.put(list(range(1000)))
        await client.put_sample({"payload": [payload]})
        (sample,) = await client.take(1)
        assert sample["payload"][0] == payload, "the reference travels, not what it refers to"
        await client.close("end of data")
        with pytest.raises(QueueClosed, match="end of data"):
            await client.take(1)

    asyncio.run(scenario())
