# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Front door of synchronous, colocated PPO and its relatives.

python -m verl.trainer.main_ppo key=value …
"""

import sys
from typing import Any

import ray
from omegaconf import OmegaConf

from verl.config import build_config
from verl.config.front_door import run_main
from verl.errors import UnsupportedError
from verl.trainer.job import run_job
from verl.trainer.ppo.utils import Role, need_critic, need_reference_policy, need_reward_model, need_teacher_policy
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.logging_utils import set_up_logging

# By name: the driver passes the task runner on, and must not load torch for it.
TRAINER = "verl.trainer.ppo.ray_trainer.RayPPOTrainer"
POOLS = "verl.single_controller.ray.pool.ResourcePoolManager"
ACTOR_WORKER = "verl.workers.engine_workers.ActorRolloutRefWorker"
CRITIC_WORKER = "verl.workers.engine_workers.TrainingWorker"
WORKER_GROUP = "verl.single_controller.ray.group.RayWorkerGroup"
LOAD_TOKENIZER = "verl.utils.tokenizer.load_tokenizer_and_processor"

POOL = "global_pool"
RUNNER_THREADS = 8


class TaskRunner:
    """Builds the trainer in an actor of its own, with threads, and runs it.

    A recipe sets `trainer_class`, overrides one of the `add_…` methods, which fill `role_worker_mapping` (role to
    worker class) and `mapping` (role to pool), or writes a `run` of its own.
    """

    trainer_class = TRAINER

    def __init__(self) -> None:
        set_up_logging("runner")
        self.trainer: Any = None
        self.role_worker_mapping: dict[Role, Any] = {}
        self.mapping: dict[Role, str] = {}

    def run(self, config: Any) -> dict[str, Any]:
        """The whole run; returns how it ended."""
        tokenizer, processor = load_class_from_fqn(LOAD_TOKENIZER)(config.actor_rollout_ref.model)
        actor_rollout_cls, worker_group_cls = self.add_actor_rollout_worker(config)
        self.add_critic_worker(config)
        self.add_reward_model_resource_pool(config)
        self.add_teacher_model_resource_pool(config)
        self.add_ref_policy_worker(config, actor_rollout_cls)
        self.trainer = load_class_from_fqn(self.trainer_class)(
            config,
            tokenizer,
            self.role_worker_mapping,
            self.init_resource_pool_mgr(config),
            worker_group_cls,
            processor=processor,
        )
        self.trainer.init_workers()
        metrics = self.trainer.fit()
        return {"reason": "end of training", "version": self.trainer.global_steps, "metrics": metrics}

    def add_actor_rollout_worker(self, config: Any) -> tuple[type, type]:
        """Enter the policy's worker; returns its class and that of its group."""
        worker = load_class_from_fqn(ACTOR_WORKER)
        self._add(Role.ActorRollout, worker)
        return worker, load_class_from_fqn(WORKER_GROUP)

    def add_critic_worker(self, config: Any) -> None:
        """Enter the critic's worker, where the estimator needs one."""
        if need_critic(config):
            self._add(Role.Critic, load_class_from_fqn(CRITIC_WORKER))

    def add_ref_policy_worker(self, config: Any, ref_policy_cls: type) -> None:
        """Enter the reference policy, where a KL term needs one; it shares the actor's processes."""
        if need_reference_policy(config):
            self._add(Role.RefPolicy, ref_policy_cls)

    def add_reward_model_resource_pool(self, config: Any) -> None:
        """Nothing to add: rewards are computed by processes without devices; a reward model is refused."""
        if need_reward_model(config):
            raise UnsupportedError(
                "a reward model has no worker here",
                where="reward.reward_model.enable",
                remedy="call it from reward.custom_reward_function, over HTTP if it is served",
            )

    def add_teacher_model_resource_pool(self, config: Any) -> None:
        """Nothing to add: on-policy distillation is refused."""
        if need_teacher_policy(config):
            raise UnsupportedError(
                "on-policy distillation is left out", where="distillation.enabled", remedy="set it to false"
            )

    def init_resource_pool_mgr(self, config: Any) -> Any:
        """The manager of one pool over all nodes, for the roles entered so far."""
        spec = {POOL: [config.trainer.n_gpus_per_node] * config.trainer.nnodes}
        return load_class_from_fqn(POOLS)(resource_pool_spec=spec, mapping=self.mapping)

    def _add(self, role: Role, worker: type) -> None:
        self.role_worker_mapping[role] = worker
        self.mapping[role] = POOL

    def request_stop(self) -> None:
        """Finish the step in progress, save, and end."""
        if self.trainer is not None:
            self.trainer.request_stop()

    def status(self) -> dict[str, Any]:
        """One mapping for the progress line."""
        return {"phase": "starting"} if self.trainer is None else self.trainer.status()


def run_ppo(config: Any, task_runner_class: Any = None) -> int:
    """Run a configuration on Ray, Hydra's or typed; the runner gets it as it is given here. Returns the exit code."""
    runner = task_runner_class or ray.remote(num_cpus=0)(TaskRunner)
    typed = build_config(config, unknown="keep") if OmegaConf.is_config(config) else config
    # Our own runner reads typed configurations only; a recipe's runner edits the one of its front door.
    own = config if task_runner_class is not None else typed
    # Threads: `run` occupies one, and the driver goes on asking for the status.
    return run_job(typed, runner.options(max_concurrency=RUNNER_THREADS), own)


def main() -> None:
    """Console entry."""
    sys.exit(
        run_main(lambda config, _raw: run_ppo(config), config_module="verl.trainer.config", config_name="ppo_trainer")
    )


if __name__ == "__main__":
    main()
