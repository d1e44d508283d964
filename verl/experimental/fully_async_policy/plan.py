# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a fully asynchronous run, worked out once before anything starts (verl's formulas)."""

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from verl.errors import ConfigError

# verl starts at most this many groups at a time on each rollout server.
GROUPS_PER_SERVER = 16


@dataclass(frozen=True)
class AsyncPlan:
    """Numbers of prompt groups; each group has `rollout.n` trajectories.

    required_samples : groups of one local step = ppo_mini_batch_size × require_batches.
    trigger_parameter_sync_step : local steps of one version.
    total_groups : groups of the whole run, a multiple of `required_samples`.
    """

    required_samples: int
    trigger_parameter_sync_step: int
    staleness_threshold: float
    total_groups: int
    prompts_per_epoch: int

    @classmethod
    def of(cls, config: Any, prompts_per_epoch: int) -> "AsyncPlan":
        """Work out the plan of a config and a training set.

        `rollout.total_rollout_steps` bounds the prompts of the run; without it, `trainer.total_epochs` passes do.
        """
        mode = config.async_training
        required = config.actor_rollout_ref.actor.ppo_mini_batch_size * mode.require_batches
        wanted = config.rollout.total_rollout_steps
        available = prompts_per_epoch * config.trainer.total_epochs
        total = available if wanted is None else min(int(wanted), available)
        steps = total // required
        if config.trainer.total_training_steps is not None:
            steps = min(steps, config.trainer.total_training_steps)
        if steps < 1:
            raise ConfigError(
                "the run is shorter than one training step",
                where="rollout.total_rollout_steps",
                got=f"{total} prompts",
                expected=f"at least ppo_mini_batch_size x require_batches = {required}",
                remedy="raise rollout.total_rollout_steps or trainer.total_epochs, or lower ppo_mini_batch_size",
            )
        return cls(
            required_samples=required,
            trigger_parameter_sync_step=mode.trigger_parameter_sync_step,
            staleness_threshold=mode.staleness_threshold,
            total_groups=steps * required,
            prompts_per_epoch=prompts_per_epoch,
        )

    @property
    def max_required_samples(self) -> int:
        """Groups that may be started per version: ⌊required × (1 + staleness_threshold) × trigger⌋."""
        return exact_floor(self.required_samples, 1 + self.staleness_threshold, self.trigger_parameter_sync_step)

    @property
    def max_queue_size(self) -> int:
        return self.max_required_samples

    def max_concurrent_samples(self, num_servers: int) -> int:
        """Groups in flight at the same time: 16 per server, never more than one version may start."""
        return min(GROUPS_PER_SERVER * num_servers, self.max_required_samples)

    @property
    def total_steps(self) -> int:
        """Local training steps of the run."""
        return self.total_groups // self.required_samples

    @property
    def total_versions(self) -> int:
        """Weight publications of the run (verl's `total_train_steps`)."""
        return self.total_steps // self.trigger_parameter_sync_step

    def fingerprint(self) -> dict[str, Any]:
        """What a resumed run is compared with."""
        return asdict(self)


def exact_floor(*factors: float) -> int:
    """Floor of a product of decimal numbers as written: 50 × 1.16 is 58, though the float product is 57.99…"""
    product = Fraction(1)
    for factor in factors:
        product *= Fraction(str(round(factor, 9)))
    return product.__floor__()
