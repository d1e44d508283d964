# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The parts of a synchronous run: generate a batch now, publish after every step."""

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from verl.algorithms.advantages import AdvantageEstimator
from verl.protocol import DataProto
from verl.trainer.ppo.batch_source import balance_batch, pad_with_masked_rows
from verl.trainer.ppo.metric_utils import scores_of
from verl.trainer.ppo.steps import Metrics
from verl.utils.profiler import marked_timer
from verl.utils.rollout_skip import RolloutSkip
from verl.utils.trace import span


class GenerateNow:
    """A batch source that takes the next prompts and generates their trajectories before it returns."""

    def __init__(
        self,
        config: Any,
        loader: Any,
        agent_loops: Any,
        after_generation: Callable[[], Any],
        row_multiple: int,
        skip: RolloutSkip | None = None,
    ) -> None:
        self.config = config
        self.loader = loader
        self.agent_loops = agent_loops
        self.after_generation = after_generation
        self.row_multiple = row_multiple
        self.skip = skip
        self.version = 0
        self.epoch = 0
        self._rows: Iterator[dict[str, Any]] | None = None

    async def next_batch(self, step: int, metrics: Metrics) -> DataProto | None:
        """`data.train_batch_size` prompts with `rollout.n` scored trajectories each."""
        rows = self._next_rows()
        if rows is None:
            return None
        prompts = DataProto.from_single_dict(rows)
        prompts.non_tensor_batch["uid"] = np.array(self.loader.uids, dtype=object)
        prompts.meta_info |= {"global_steps": self.version, "validate": False}
        if self.skip is not None:
            self.skip.record(prompts, global_steps=step)
        batch = await self._generate(prompts, metrics)
        await self.after_generation()
        metrics["training/epoch"] = self.epoch
        metrics |= {f"timing_s/{name}": value for name, value in batch.meta_info.get("timing", {}).items()}
        batch = pad_with_masked_rows(batch, self.row_multiple)
        if self.config.trainer.balance_batch:
            metrics |= balance_batch(batch, self.row_multiple)
        return batch

    async def _generate(self, prompts: DataProto, metrics: Metrics) -> DataProto:
        """`rollout.n` answers to each prompt; for ReMax beside one greedy answer, whose reward is their baseline.

        `timing_s/gen_max` is the time of the greedy answers, which are written at the same time.
        """
        n = self.config.actor_rollout_ref.rollout.n
        several = self.agent_loops.generate_sequences(prompts.repeat(repeat_times=n, interleave=True))
        if self.config.algorithm.adv_estimator != AdvantageEstimator.REMAX:
            return await several
        greedy = replace(prompts, meta_info=prompts.meta_info | {"do_sample": False})
        timing_raw: dict[str, float] = {}

        async def answer_greedily() -> DataProto:
            with marked_timer("gen_max", timing_raw):
                return await self.agent_loops.generate_sequences(greedy)

        batch, answers = await asyncio.gather(several, answer_greedily())
        metrics["timing_s/gen_max"] = timing_raw["gen_max"]
        # An answer that could not be scored is no baseline of 0: its prompt takes no part.
        rewards = [math.nan if score is None else score for score in scores_of(answers, "rm_scores")]
        batch.batch["reward_baselines"] = torch.tensor(rewards).repeat_interleave(n)
        return batch

    def _next_rows(self) -> dict[str, Any] | None:
        while self.epoch < self.config.trainer.total_epochs:
            if self._rows is None:
                self._rows = iter(self.loader)
            rows = next(self._rows, None)
            if rows is not None:
                return rows
            self._rows = None
            self.epoch += 1
        return None

    async def trained(self, step: int) -> None:
        """Nothing to account for: every batch is trained before the next is generated."""

    def position(self) -> dict[str, Any]:
        """Plain part of the state for a checkpoint."""
        return {"epoch": self.epoch}

    def restore(self, position: dict[str, Any], loader_state: dict[str, Any]) -> None:
        """Continue behind the last batch."""
        self.loader.load_state_dict(loader_state)
        self.epoch = max(int(position["epoch"]), self.loader.epoch)


class PublishEveryStep:
    """A weight publisher for policies whose rollout must always have the newest weights."""

    def __init__(self, manager: Any, on_version: Callable[[int], None]) -> None:
        self.manager = manager
        self.on_version = on_version
        self.version = 0

    async def publish(self, version: int) -> Metrics:
        """Push the present weights as `version`."""
        with span("update_weights", version=version):
            stats = await self.manager.update_weights(global_steps=version)
        self.version = version
        self.on_version(version)
        return {f"weight_sync/{name}": float(value) for name, value in (stats or {}).items()}

    async def maybe_publish(self, step: int, timing_raw: dict[str, float]) -> tuple[bool, Metrics]:
        """After every step."""
        with marked_timer("update_weights", timing_raw):
            return True, await self.publish(step)

    async def finish(self) -> tuple[bool, Metrics]:
        """Nothing is ever left to publish."""
        return False, {}
