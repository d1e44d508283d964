# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a fully asynchronous run, worked out once before anything starts (verl's formulas)."""

from dataclasses import asdict, dataclass
from typing import Any

from verl.config import async_training as formulas
from verl.errors import ConfigError


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
        required = formulas.required_samples(config.actor_rollout_ref.actor.ppo_mini_batch_size, mode.require_batches)
        total = formulas.total_rollout_steps(
            config.rollout.total_rollout_steps, prompts_per_epoch, config.trainer.total_epochs
        )
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
        return formulas.max_required_samples(
            self.required_samples, self.trigger_parameter_sync_step, self.staleness_threshold
        )

    @property
    def max_queue_size(self) -> int:
        return self.max_required_samples

    def max_concurrent_samples(self, num_servers: int) -> int:
        """Groups in flight at the same time: 16 per server, never more than one version may start."""
        return formulas.max_concurrent_samples(num_servers, self.max_required_samples)

    @property
    def total_steps(self) -> int:
        """Local training steps of the run."""
        return self.total_groups // self.required_samples

    @property
    def total_versions(self) -> int:
        """Weight publications of the run (verl's `total_train_steps`)."""
        return formulas.total_train_steps(self.total_groups, self.required_samples, self.trigger_parameter_sync_step)

    def fingerprint(self) -> dict[str, Any]:
        """What a resumed run is compared with."""
        return asdict(self)
