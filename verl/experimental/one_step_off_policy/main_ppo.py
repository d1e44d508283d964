# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Front door of the one-step-off trainer.

python -m verl.experimental.one_step_off_policy.main_ppo key=value …
"""

import sys
from typing import Any

import ray

from verl.config.front_door import run_main
from verl.trainer.main_ppo import ACTOR_WORKER, WORKER_GROUP, TaskRunner, run_ppo
from verl.trainer.ppo.utils import Role
from verl.utils.import_utils import load_class_from_fqn

TRAINER = "verl.experimental.one_step_off_policy.ray_trainer.OneStepOffRayTrainer"


class OneStepTaskRunnerCore(TaskRunner):
    """Builds the trainer of two pools; the policy's processes train only."""

    trainer_class = TRAINER

    def add_actor_rollout_worker(self, config: Any) -> tuple[type, type]:
        """Enter the policy's worker, which has no rollout in it; returns its class and that of its group."""
        worker = load_class_from_fqn(ACTOR_WORKER)
        self._add(Role.Actor, worker)
        return worker, load_class_from_fqn(WORKER_GROUP)


OneStepTaskRunner = ray.remote(num_cpus=0)(OneStepTaskRunnerCore)


def main() -> None:
    """Console entry."""
    sys.exit(
        run_main(
            lambda config, _raw: run_ppo(config, OneStepTaskRunner),
            config_module="verl.experimental.one_step_off_policy.config",
            config_name="one_step_off_ppo_trainer",
        )
    )


if __name__ == "__main__":
    main()
