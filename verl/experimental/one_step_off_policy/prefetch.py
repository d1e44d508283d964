# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A batch source that generates the next batch while the present one is trained, and the publisher that waits for it.

next_batch(k)  returns batch k, and starts batch k+1 with the weights that step k-1 made
publish(k)     waits until batch k+1 is there, so that no answer mixes two versions
"""

import asyncio
from collections.abc import Callable
from typing import Any

from verl.protocol import DataProto
from verl.trainer.ppo.generate_now import GenerateNow, PublishEveryStep
from verl.trainer.ppo.steps import Metrics

Generated = tuple[DataProto | None, Metrics]


class PrefetchOne:
    """One batch ahead of training; `last_step` is the last one that will be asked for."""

    def __init__(self, source: GenerateNow, last_step: int) -> None:
        self.source = source
        self.last_step = last_step
        self._next: asyncio.Task[Generated] | None = None
        self._behind = self._place()

    @property
    def version(self) -> int:
        """Policy version of the rollout."""
        return self.source.version

    @version.setter
    def version(self, version: int) -> None:
        self.source.version = version

    async def next_batch(self, step: int, metrics: Metrics) -> DataProto | None:
        """The batch of `step`; the next one is being generated when this returns."""
        task = self._next or self._start(step)
        batch, found = await task
        metrics |= found
        self._next = None
        self._behind = self._place()
        if batch is not None and step < self.last_step:
            self._next = self._start(step + 1)
        return batch

    def _start(self, step: int) -> asyncio.Task[Generated]:
        return asyncio.create_task(self._generate(step), name=f"batch of step {step}")

    async def _generate(self, step: int) -> Generated:
        metrics: Metrics = {}
        return await self.source.next_batch(step, metrics), metrics

    async def settled(self) -> None:
        """Wait until nothing is being generated; raises what the generation raised."""
        if self._next is not None:
            await self._next

    async def close(self) -> None:
        """Drop what is still being generated."""
        task, self._next = self._next, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def trained(self, step: int) -> None:
        """Nothing to account for: a checkpoint keeps the place behind the last batch that was handed out."""

    def _place(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.source.position(), self.source.loader.state_dict()

    def position(self) -> dict[str, Any]:
        """Plain part of the state behind the last batch that was handed out."""
        return self._behind[0]

    def loader_state(self) -> dict[str, Any]:
        """The loader's part; a batch generated ahead is generated again after a resume."""
        return self._behind[1]

    def restore(self, position: dict[str, Any], loader_state: dict[str, Any]) -> None:
        """Continue there."""
        self.source.restore(position, loader_state)
        self._behind = self._place()


class PublishBetweenBatches(PublishEveryStep):
    """Publishes after every step, when the batch that was generated meanwhile is complete."""

    def __init__(self, manager: Any, source: PrefetchOne, on_version: Callable[[int], None]) -> None:
        super().__init__(manager, on_version)
        self.source = source

    async def publish(self, version: int) -> Metrics:
        """Push the present weights as `version`."""
        await self.source.settled()
        return await super().publish(version)
