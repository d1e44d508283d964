# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One batch ahead: which weights write which batch, what a checkpoint remembers, and what a failure leaves."""

import asyncio
from typing import Any

import pytest

from verl.experimental.one_step_off_policy.prefetch import PrefetchOne, PublishBetweenBatches


class Loader:
    def __init__(self) -> None:
        self.rows_done = 0

    def state_dict(self) -> dict[str, Any]:
        return {"rows_done": self.rows_done}


class Generation:
    """A source whose batches say which place and version they are of; `held` keeps them from finishing."""

    def __init__(self, batches: int) -> None:
        self.loader = Loader()
        self.version = 0
        self.left = batches
        self.held = asyncio.Event()
        self.held.set()
        self.started: list[tuple[int, int]] = []
        self.fails_at: int | None = None

    async def next_batch(self, step: int, metrics: dict[str, Any]) -> Any:
        if not self.left:
            return None
        self.left -= 1
        self.loader.rows_done += 1
        self.started.append((step, self.version))
        batch = (step, self.version)
        await self.held.wait()
        if step == self.fails_at:
            raise ValueError("no server")
        metrics["step"] = step
        return batch

    def position(self) -> dict[str, Any]:
        return {"epoch": 0}


class Servers:
    def __init__(self) -> None:
        self.published: list[int] = []

    async def update_weights(self, *, global_steps: int) -> dict[str, float]:
        self.published.append(global_steps)
        return {}


def parts(batches: int, last_step: int) -> tuple[Generation, PrefetchOne, PublishBetweenBatches, Servers]:
    generation, servers = Generation(batches), Servers()
    source = PrefetchOne(generation, last_step)
    publisher = PublishBetweenBatches(servers, source, lambda version: setattr(source, "version", version))
    return generation, source, publisher, servers


def test_every_batch_but_the_first_is_written_by_the_policy_before_the_last_one() -> None:
    async def run() -> tuple[list[Any], list[dict[str, Any]]]:
        _, source, publisher, _ = parts(batches=9, last_step=5)
        await publisher.publish(0)
        batches, measured = [], []
        for step in range(1, 6):
            metrics: dict[str, Any] = {}
            batches.append(await source.next_batch(step, metrics))
            measured.append(metrics)
            await publisher.maybe_publish(step, {})
        return batches, measured

    batches, measured = asyncio.run(run())
    assert batches == [(1, 0), (2, 0), (3, 1), (4, 2), (5, 3)]
    assert measured == [{"step": step} for step in range(1, 6)]


def test_nothing_is_generated_that_will_not_be_trained() -> None:
    async def run() -> list[tuple[int, int]]:
        generation, source, _, _ = parts(batches=9, last_step=2)
        for step in (1, 2):
            await source.next_batch(step, {})
        await asyncio.sleep(0)
        return generation.started

    assert [step for step, _ in asyncio.run(run())] == [1, 2]


def test_weights_are_published_only_when_the_batch_that_is_being_written_is_complete() -> None:
    async def run() -> None:
        generation, source, publisher, servers = parts(batches=9, last_step=9)
        await source.next_batch(1, {})
        generation.held.clear()
        await asyncio.sleep(0)
        publishing = asyncio.create_task(publisher.publish(1))
        await asyncio.sleep(0.01)
        assert generation.started == [(1, 0), (2, 0)] and servers.published == []
        generation.held.set()
        await publishing
        assert servers.published == [1]

    asyncio.run(run())


def test_a_checkpoint_remembers_the_place_behind_the_batch_that_was_trained() -> None:
    async def run() -> None:
        generation, source, _, _ = parts(batches=9, last_step=9)
        assert source.loader_state() == {"rows_done": 0}
        for step in (1, 2):
            await source.next_batch(step, {})
            await source.settled()
            assert generation.loader.rows_done == step + 1
            assert source.loader_state() == {"rows_done": step}

    asyncio.run(run())


def test_the_end_of_the_data_ends_the_run() -> None:
    async def run() -> list[Any]:
        _, source, _, _ = parts(batches=2, last_step=9)
        return [await source.next_batch(step, {}) for step in (1, 2, 3)]

    assert asyncio.run(run()) == [(1, 0), (2, 0), None]


def test_a_generation_that_fails_fails_the_run_before_weights_are_published() -> None:
    async def run() -> list[int]:
        generation, source, publisher, servers = parts(batches=9, last_step=9)
        generation.fails_at = 2
        await source.next_batch(1, {})
        with pytest.raises(ValueError, match="no server"):
            await publisher.publish(1)
        await source.close()
        return servers.published

    assert asyncio.run(run()) == []


def test_closing_ends_a_batch_that_is_being_written() -> None:
    async def run() -> set[str]:
        generation, source, _, _ = parts(batches=9, last_step=9)
        await source.next_batch(1, {})
        generation.held.clear()
        await asyncio.sleep(0)
        await source.close()
        await source.settled()
        return {task.get_name() for task in asyncio.all_tasks()} & {"batch of step 2"}

    assert asyncio.run(run()) == set()
