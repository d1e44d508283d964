# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Front door of synchronous, colocated PPO and its relatives.

python -m verl.trainer.main_ppo key=value …
"""

import asyncio
import sys
from typing import Any

import ray

from verl.config.front_door import run_main
from verl.trainer.job import run_job
from verl.trainer.ppo.utils import Role, need_critic, need_reference_policy
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.logging_utils import set_up_logging

# By name: the driver passes the task runner on, and must not load torch for it.
TRAINER = "verl.trainer.ppo.ray_trainer.RayPPOTrainer"
POOLS = "verl.single_controller.ray.pool.ResourcePoolManager"
ACTOR_WORKER = "verl.workers.engine_workers.ActorRolloutRefWorker"
CRITIC_WORKER = "verl.workers.engine_workers.TrainingWorker"
LOAD_TOKENIZER = "verl.utils.tokenizer.load_tokenizer_and_processor"

POOL = "global_pool"


class TaskRunner:
    """Builds the trainer in an actor of its own and runs it; a recipe overrides `trainer_class` or `role_workers`."""

    trainer_class = TRAINER

    def __init__(self) -> None:
        set_up_logging("runner")
        self.trainer: Any = None

    async def run(self, config: Any) -> dict[str, Any]:
        """The whole run; returns how it ended."""
        metrics = await asyncio.to_thread(self._run, config)
        return {"reason": "end of training", "version": self.trainer.global_steps, "metrics": metrics}

    def _run(self, config: Any) -> dict[str, Any]:
        tokenizer, processor = load_class_from_fqn(LOAD_TOKENIZER)(config.actor_rollout_ref.model)
        roles = self.role_workers(config)
        size = [config.trainer.n_gpus_per_node] * config.trainer.nnodes
        pools = load_class_from_fqn(POOLS)({POOL: size}, {role: POOL for role in roles})
        self.trainer = load_class_from_fqn(self.trainer_class)(config, tokenizer, roles, pools, processor=processor)
        self.trainer.init_workers()
        return self.trainer.fit()

    def role_workers(self, config: Any) -> dict[Role, type]:
        """Which class plays each role; actor, rollout and reference share their processes."""
        worker = load_class_from_fqn(ACTOR_WORKER)
        roles: dict[Role, type] = {Role.ActorRollout: worker}
        if need_critic(config):
            roles[Role.Critic] = load_class_from_fqn(CRITIC_WORKER)
        if need_reference_policy(config):
            roles[Role.RefPolicy] = worker
        return roles

    async def request_stop(self) -> None:
        """Finish the step in progress, save, and end."""
        if self.trainer is not None:
            self.trainer.request_stop()

    async def status(self) -> dict[str, Any]:
        """One mapping for the progress line."""
        return {"phase": "starting"} if self.trainer is None else self.trainer.status()


def run_ppo(config: Any, task_runner_class: Any = None) -> int:
    """Run a typed config on Ray; returns the exit code."""
    runner = task_runner_class or ray.remote(num_cpus=0, max_concurrency=16)(TaskRunner)
    return run_job(config, runner)


def main() -> None:
    """Console entry."""
    sys.exit(
        run_main(lambda config, _raw: run_ppo(config), config_module="verl.trainer.config", config_name="ppo_trainer")
    )


if __name__ == "__main__":
    main()
