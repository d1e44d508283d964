# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Messages between the actors; free of torch, because the queue's process holds them."""

from dataclasses import dataclass, field
from typing import Any

from verl.experimental.agent_loop.trajectory import GroupMeta

# int32 id, bool mask, float32 log-prob, int32 version.
BYTES_PER_TOKEN = 13


@dataclass(frozen=True)
class RolloutSample:
    """One finished prompt group in the message queue: metadata, and a reference to its trajectories.

    `payload` holds the one object reference in a tuple, so that Ray passes the reference on instead of its value.
    `rollout_status` are the rollouter's counters when the group was finished.
    """

    sample_id: str
    epoch: int
    start_version: int
    meta: GroupMeta
    payload: tuple[Any, ...]
    rollout_status: dict[str, float] = field(default_factory=dict)

    @property
    def payload_bytes(self) -> int:
        """About what the trajectories weigh: ids, mask, log-probs and versions of each token."""
        tokens = sum(self.meta.response_lengths)
        return tokens * BYTES_PER_TOKEN + self.meta.num_trajectories * self.meta.prompt_length * 4


@dataclass(frozen=True)
class ValidateMetrics:
    """Result of one validation: timings, metrics, and (input, output, score) rows for the generations table."""

    timing_raw: dict[str, float]
    metrics: dict[str, float] | None = None
    val_generations: list[tuple[str, str, float]] | None = None
