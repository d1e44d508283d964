# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The fully asynchronous trainer's dials, and the arithmetic that follows from them."""

import math
from dataclasses import dataclass
from typing import Any

from verl.config.checks import at_least, require
from verl.config.node import Node


def exact_floor(value: float) -> int:
    """⌊value⌋ after rounding to 1e-9, so that 50 × 1.16 is 58 although the float product is 57.99…"""
    return math.floor(round(value, 9))


def required_samples(ppo_mini_batch_size: int, require_batches: int) -> int:
    """Prompt groups that the trainer takes per round."""
    return ppo_mini_batch_size * require_batches


def max_required_samples(required: int, trigger_parameter_sync_step: int, staleness_threshold: float) -> int:
    """Prompt groups that may be started between two weight updates."""
    return exact_floor(required * trigger_parameter_sync_step * (1 + staleness_threshold))


def max_concurrent_samples(num_servers: int, max_required: int) -> int:
    """Prompt groups in flight at the same time."""
    return min(16 * num_servers, max_required)


def total_rollout_steps(limit: int | None, rows_per_epoch: int, total_epochs: int) -> int:
    """Prompt groups generated in the whole run."""
    available = rows_per_epoch * total_epochs
    return available if limit is None else min(limit, available)


def total_train_steps(total_rollout: int, required: int, trigger_parameter_sync_step: int) -> int:
    """Weight versions of the whole run."""
    return total_rollout // (required * trigger_parameter_sync_step)


def device_share(config: Any) -> float:
    """Part of a device that each rank of this run reserves; a whole one outside the asynchronous trainer."""
    section = config.get("async_training")
    return float(section.get("device_share", 1.0)) if section else 1.0


@dataclass(frozen=True)
class AsyncTrainingConfig(Node):
    """How far generation may run ahead of training."""

    staleness_threshold: float = 0.1
    """Extra share of prompt groups that may be started ahead of the current version, ≥ 0; 0 is synchronous."""
    trigger_parameter_sync_step: int = 4
    """Optimizer rounds between two weight updates, ≥ 1."""
    require_batches: int = 1
    """Mini-batches that one round takes from the queue, ≥ 1."""
    partial_rollout: bool = True
    """A weight update interrupts generation, which goes on with the new weights."""
    use_trainer_do_validate: bool = False
    """Refused when true."""
    max_version_lag: int | None = None
    """Versions that a token may be behind at training; null: measured, not bounded."""
    device_share: float = 1.0
    """Part of a device that each rank of trainer and rollout reserves, in (0, 1]; 0.5: one device holds both."""
    stall_timeout_s: float = 1800.0
    """Seconds without a finished prompt group after which the trainer gives the rollouter up, > 0."""

    def __post_init__(self) -> None:
        at_least(self, 0, "staleness_threshold", "max_version_lag")
        at_least(self, 1, "trigger_parameter_sync_step", "require_batches", "stall_timeout_s")
        require(0 < self.device_share <= 1, "device_share", self.device_share, "in (0, 1]")


@dataclass(frozen=True)
class RolloutPoolConfig(Node):
    """The devices of the rollout servers in the disaggregated trainers."""

    nnodes: int = 1
    """Nodes."""
    n_gpus_per_node: int = 8
    """Devices per node."""
    n: int | None = None
    """Trajectories per prompt: always `actor_rollout_ref.rollout.n`; another value of yours is an error."""
    total_rollout_steps: int | None = 100
    """Most prompt groups generated in the whole run; null: epochs × rows."""

    def __post_init__(self) -> None:
        at_least(self, 1, "nnodes", "n_gpus_per_node", "total_rollout_steps")

    @property
    def num_devices(self) -> int:
        """Devices of the pool."""
        return self.nnodes * self.n_gpus_per_node
