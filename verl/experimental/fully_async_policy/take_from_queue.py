# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The trainer's side of the queue: takes groups, fetches their trajectories, makes one padded batch."""

import asyncio
import logging
import math
import time
from typing import Any

import ray.exceptions

from verl.experimental.agent_loop.trajectory import Trajectory
from verl.experimental.fully_async_policy.detach_utils import (
    RolloutSample,
    assemble_batch_from_rollout_samples,
)
from verl.experimental.fully_async_policy.message_queue import MessageQueueClient, QueueClosed, RolloutFailed
from verl.protocol import DataProto
from verl.trainer.ppo.batch_source import balance_batch, pad_with_masked_rows
from verl.trainer.ppo.steps import Metrics
from verl.waits import bounded, expired, waiting_on

logger = logging.getLogger(__name__)

FETCH_DEADLINE_S = 300.0
MESSAGE_DEADLINE_S = 120.0


class TakeFromQueue:
    """A batch source for `TrainLoop`: `required_samples` groups at a time, oldest weights first.

    `version` must be kept at the policy version in training; ages are measured against it.
    """

    def __init__(
        self, config: Any, queue: MessageQueueClient, rollouter: Any, *, required: int, pad_token_id: int, dp_size: int
    ) -> None:
        self.config = config
        self.queue = queue
        self.rollouter = rollouter
        self.required = required
        self.pad_token_id = pad_token_id
        self.dp_size = dp_size
        self.version = 0
        self.stale_trajectories = 0
        self._taken: list[str] = []

    async def next_batch(self, step: int, metrics: Metrics) -> DataProto | None:
        """One batch, or None when fewer than `required` groups will ever come."""
        started = time.monotonic()
        collected = await self._collect()
        metrics["fully_async/total_wait_time"] = time.monotonic() - started
        if collected is None:
            return None
        samples, groups = collected
        rollout = self.config.actor_rollout_ref.rollout
        batch, stale = await asyncio.to_thread(
            assemble_batch_from_rollout_samples,
            samples,
            groups,
            pad_token_id=self.pad_token_id,
            prompt_length=rollout.prompt_length,
            response_length=rollout.response_length,
            temperature=rollout.temperature,
            version=self.version,
        )
        self.stale_trajectories += int(stale.pop("fully_async/count/stale_trajectory"))
        metrics |= stale
        metrics["fully_async/count/stale_trajectory_processed"] = self.stale_trajectories
        metrics["training/epoch"] = samples[-1].epoch
        batch = pad_with_masked_rows(batch, self._row_multiple())
        if self.config.trainer.balance_batch and self.dp_size > 1:
            metrics |= balance_batch(batch, self.dp_size)
        return batch

    async def trained(self, step: int) -> None:
        await self._tell("note_trained", self._taken)
        self._taken = []

    def _row_multiple(self) -> int:
        """Rows must split evenly over ranks and into whole mini-batches."""
        rollout, actor = self.config.actor_rollout_ref.rollout, self.config.actor_rollout_ref.actor
        return math.lcm(self.dp_size, actor.ppo_mini_batch_size * rollout.n)

    async def _collect(self) -> tuple[list[RolloutSample], list[list[Trajectory]]] | None:
        samples: list[RolloutSample] = []
        groups: list[list[Trajectory]] = []
        if self.config.async_training.max_version_lag is not None:
            await self._tell("wait_for_overdue", self._stall_s(), deadline_s=self._stall_s() + MESSAGE_DEADLINE_S)
        while len(samples) < self.required:
            taken = await self._take(self.required - len(samples))
            uids = [sample.sample_id for sample in taken]
            await self._tell("note_taken", uids)
            if len(samples) + len(taken) < self.required:
                left = [sample.sample_id for sample in samples] + uids
                if left:
                    await self._tell("note_dropped", left, "end of data, batch incomplete")
                    logger.warning("%d groups at the end of the data do not fill a batch and are left out", len(left))
                return None
            fetched = await asyncio.gather(*(self._fetch(sample) for sample in taken))
            lost = [sample.sample_id for sample, group in zip(taken, fetched, strict=True) if group is None]
            if lost:
                logger.warning("trajectories of %s were lost with their process; generating them again", lost)
                await self._tell("regenerate", lost, "payload lost")
            for sample, group in zip(taken, fetched, strict=True):
                if group is not None:
                    samples.append(sample)
                    groups.append(group)
        self._taken = [sample.sample_id for sample in samples]
        return samples, groups

    async def _take(self, count: int) -> list[RolloutSample]:
        """`count` samples, or fewer at the end of the data; an error when nothing moves for `stall_timeout_s`."""
        stall_s = self._stall_s()
        with waiting_on(f"{count} prompt groups", "the rollouter", stall_s):
            produced, moved = -1, time.monotonic()
            while True:
                try:
                    if taken := await self.queue.take(count):
                        return taken
                except QueueClosed as closed:
                    if closed.failed:
                        raise RolloutFailed(closed.reason) from closed
                    return []
                now_produced = (await self.queue.get_statistics())["total_produced"]
                if now_produced != produced:
                    produced, moved = now_produced, time.monotonic()
                elif time.monotonic() - moved > stall_s:
                    raise expired(
                        "finished prompt group",
                        "the rollouter",
                        stall_s,
                        remedy="look at logs/ of the run for a stuck server or reward function; "
                        "a run with very long answers may raise async_training.stall_timeout_s",
                    )

    async def _fetch(self, sample: RolloutSample) -> list[Trajectory] | None:
        try:
            return await bounded(
                sample.payload[0],
                what=f"trajectories of group {sample.sample_id}",
                whom="the object store",
                deadline_s=FETCH_DEADLINE_S,
            )
        except (ray.exceptions.ObjectLostError, ray.exceptions.OwnerDiedError):
            return None

    async def _tell(self, method: str, *args: Any, deadline_s: float = MESSAGE_DEADLINE_S) -> Any:
        return await bounded(
            getattr(self.rollouter, method).remote(*args),
            what=f"an answer to {method}",
            whom="the rollouter",
            deadline_s=deadline_s,
        )

    def _stall_s(self) -> float:
        return float(self.config.async_training.stall_timeout_s)
