# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The one training loop. Trainers differ in where batches come from and when weights are published, nowhere else."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, Protocol

from verl.protocol import DataProto
from verl.trainer.ppo.steps import STEPS, Metrics, World, run_steps
from verl.utils.profiler import marked_timer
from verl.utils.trace import span

logger = logging.getLogger(__name__)


class BatchSource(Protocol):
    """Where training batches come from."""

    async def next_batch(self, step: int, metrics: Metrics) -> DataProto | None:
        """The batch of `step`, or None when the data has ended; adds what it measured to `metrics`."""

    async def trained(self, step: int) -> None:
        """The last batch has been used by an optimizer step."""


class PlacedSource(BatchSource, Protocol):
    """A source that generates: it knows the rollout's policy version and its place in the data."""

    version: int

    def position(self) -> dict[str, Any]:
        """Plain part of the state for a checkpoint."""

    def restore(self, position: dict[str, Any], loader_state: dict[str, Any]) -> None:
        """Continue behind that place."""


class WeightPublisher(Protocol):
    """When and how new weights reach the rollout."""

    version: int

    async def maybe_publish(self, step: int, timing_raw: dict[str, float]) -> tuple[bool, Metrics]:
        """Publish if it is time; tells whether it did."""

    async def finish(self) -> tuple[bool, Metrics]:
        """Publish what has not been published yet, if anything; tells whether it did."""


class Validation(Protocol):
    """When and how the policy is measured."""

    async def maybe_run(self, version: int, *, final: bool = False) -> Metrics: ...


class Checkpoints(Protocol):
    """When and how the run is saved."""

    async def maybe_save(self, version: int, step: int, *, final: bool = False) -> float | None: ...


class Recorder(Protocol):
    """Where the numbers of a step go."""

    def step(self, step: int, batch: DataProto, metrics: Metrics, timing_raw: dict[str, float]) -> None: ...

    def publish(self, version: int, metrics: Metrics) -> None: ...


@dataclass
class TrainLoop:
    """Takes a batch, runs the steps, publishes, validates, saves, records; ends when the data or the step budget ends.

    `stop` is set by a signal handler: the step in progress is finished, then the run is saved and ends.
    """

    source: BatchSource
    world: World
    publisher: WeightPublisher
    validation: Validation
    checkpoints: Checkpoints
    recorder: Recorder
    first_step: int = 1
    last_step: int | None = None
    steps: tuple[Any, ...] = STEPS
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    current_step: int = 0

    async def run(self) -> str:
        """Train until an end is reached; returns which one: "data", "steps" or "stopped"."""
        reason = "steps"
        step = self.first_step
        while self.last_step is None or step <= self.last_step:
            if self.stop.is_set():
                reason = "stopped"
                break
            if not await self._one_step(step):
                reason = "data"
                break
            step += 1
        await self._finish(step - 1, reason)
        return reason

    async def _one_step(self, step: int) -> bool:
        self.current_step = step
        timing_raw: dict[str, float] = {}
        metrics: Metrics = {}
        published = False
        with marked_timer("step", timing_raw):
            with marked_timer("gen", timing_raw), span("wait_for_batch", step=step):
                batch = await self.source.next_batch(step, metrics)
            if batch is None:
                return False
            with span("train", step=step):
                # The steps block on remote workers; a thread keeps this actor's event loop free to answer.
                batch, new = await asyncio.to_thread(run_steps, batch, self.world, step, timing_raw, self.steps)
            metrics |= new
            await self.source.trained(step)
            published, new = await self.publisher.maybe_publish(step, timing_raw)
            metrics |= new
        if published:
            saved_s = await self.checkpoints.maybe_save(self.publisher.version, step)
            if saved_s is not None:
                timing_raw["save_checkpoint"] = saved_s
        self.recorder.step(step, batch, metrics, timing_raw)
        if published:
            self.recorder.publish(self.publisher.version, await self.validation.maybe_run(self.publisher.version))
        return True

    async def _finish(self, last_step: int, reason: str) -> None:
        logger.info("training ends after step %d (%s)", last_step, reason)
        metrics: Metrics = {}
        if reason != "stopped":
            # Who was told to stop has little time left: the save below holds the last steps in any case.
            _, metrics = await self.publisher.finish()
        version = self.publisher.version
        # First: a validation that fails must not cost the last steps.
        await self.checkpoints.maybe_save(version, last_step, final=True)
        if reason != "stopped":
            self.recorder.publish(version, metrics | await self.validation.maybe_run(version, final=True))
