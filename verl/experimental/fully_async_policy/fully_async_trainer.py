# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The training half: takes groups from the queue, runs the steps, publishes weights, saves, records."""

import asyncio
import logging
import time
from typing import Any

import ray

from verl.algorithms.kl import get_kl_controller
from verl.checkpoint_engine.manager import CheckpointEngineManager
from verl.config.async_training import device_share
from verl.config.validate import data_parallel_size
from verl.experimental.fully_async_policy.detach_utils import MetricsAggregator
from verl.experimental.fully_async_policy.message_queue import MessageQueueClient
from verl.experimental.fully_async_policy.plan import AsyncPlan
from verl.experimental.fully_async_policy.proximal_policy import ProximalPolicy
from verl.experimental.fully_async_policy.publish_to_servers import PublishToServers
from verl.experimental.fully_async_policy.take_from_queue import TakeFromQueue
from verl.experimental.separation.utils import create_resource_pool_manager, create_role_worker_mapping
from verl.tracking import Tracking, cut_after
from verl.trainer.ppo.checkpointing import CheckpointKeeper, find_resume_folder, folder_version, read_rollout_state
from verl.trainer.ppo.loop import TrainLoop
from verl.trainer.ppo.recorder import StepRecorder
from verl.trainer.ppo.setup import build_worker_groups, with_total_steps
from verl.trainer.ppo.steps import Metrics, World
from verl.trainer.ppo.utils import Role
from verl.utils.logging_utils import set_up_logging
from verl.utils.tokenizer import load_tokenizer_and_processor
from verl.utils.trace import set_up_trace
from verl.waits import bounded, current_waits

logger = logging.getLogger(__name__)

VALIDATION_DEADLINE_S = 7200.0
MESSAGE_DEADLINE_S = 300.0


class FullyAsyncTrainerCore:
    """Owns the worker groups, the only logger session, the checkpoints and the policy version."""

    def __init__(self, config: Any) -> None:
        set_up_logging("trainer")
        set_up_trace(f"{config.trainer.default_local_dir}/trace", "trainer")
        self.config = config
        self.tokenizer, _ = load_tokenizer_and_processor(config.actor_rollout_ref.model)
        self.loop: TrainLoop | None = None
        self.recorder: StepRecorder | None = None
        self.publisher: PublishToServers | None = None
        self._stop_wanted = False
        self._started_s = time.monotonic()

    # -- start-up --------------------------------------------------------------------------------------------------

    async def init_workers(self, plan: AsyncPlan) -> None:
        """Start actor, reference and critic workers and load their models."""
        self.plan = plan
        self.config = with_total_steps(self.config, plan.total_steps)
        roles = create_role_worker_mapping(self.config)
        pools = create_resource_pool_manager(self.config, list(roles))
        groups = await build_worker_groups(self.config, roles, pools)
        self.actor = groups[Role.Actor]
        self.ref = groups.get(Role.RefPolicy)
        self.critic = groups.get(Role.Critic)
        self.num_devices = pools.get_n_gpus()

    async def connect(self, rollouter: Any, replicas: list[Any], queue: MessageQueueClient) -> None:
        """Build the loop around the rollouter, its servers and the queue."""
        config = self.config
        self.rollouter = rollouter
        self.source = TakeFromQueue(
            config,
            queue,
            rollouter,
            required=self.plan.required_samples,
            pad_token_id=self.tokenizer.pad_token_id,
            dp_size=data_parallel_size(config),
        )
        manager = CheckpointEngineManager(
            config=config.actor_rollout_ref.rollout.checkpoint_engine,
            trainer=self.actor,
            replicas=replicas,
            partial_rollout=config.async_training.partial_rollout,
        )
        self.publisher = PublishToServers(
            manager,
            rollouter,
            trigger=self.plan.trigger_parameter_sync_step,
            version=0,
            on_version=lambda version: setattr(self.source, "version", version),
        )
        self.kl_controller = get_kl_controller(config.algorithm.kl_ctrl) if config.algorithm.use_kl_in_reward else None
        proximal = ProximalPolicy(self.actor, lambda: self.publisher.local_step)
        self.world = World(
            config=config,
            actor=self.actor,
            ref=self.ref,
            critic=self.critic,
            kl_controller=self.kl_controller,
            proximal_log_prob=proximal.compute_log_prob,
        )
        groups = {"actor": self.actor} | ({"critic": self.critic} if self.critic else {})
        self.checkpoints = CheckpointKeeper(config.trainer, groups, self._rollout_state, self._trainer_state)

    async def resume(self) -> int:
        """Load the checkpoint that `trainer.resume_mode` points to, push weights, and return the version served."""
        folder = find_resume_folder(self.config.trainer)
        version, self.first_step = 0, 1
        if folder is not None:
            state = await self.checkpoints.load(folder)
            version, self.first_step = folder_version(folder), int(state["optimizer_step"]) + 1
            if self.kl_controller is not None and "kl_coef" in state:
                self.kl_controller.value = state["kl_coef"]
            await self._ask("restore", *read_rollout_state(folder))
            logger.info("resumed from %s: version %d, next step %d", folder, version, self.first_step)
            # Metrics and dumps behind the checkpoint belong to a lineage that is gone.
            await asyncio.to_thread(
                cut_after,
                self.config.trainer.default_local_dir,
                version=version,
                step=self.first_step - 1,
                rollout_dir=self.config.trainer.rollout_data_dir,
                validation_dir=self.config.trainer.validation_data_dir,
            )
        self._open_tracking(version)
        await self.publisher.publish(version)
        return version

    def _open_tracking(self, version: int) -> None:
        config = self.config
        self.tracking = Tracking(
            project_name=config.trainer.project_name,
            experiment_name=config.trainer.experiment_name,
            default_backend=config.trainer.logger,
            config=config.raw,
            resume_step=version if self.first_step > 1 else None,
        )
        ranks = self.num_devices + config.rollout.num_devices
        total = max(1, round(ranks * device_share(config)))
        self.recorder = StepRecorder(
            config,
            self.tracking,
            MetricsAggregator(total),
            num_devices=total,
            use_critic=self.critic is not None,
            tokenizer=self.tokenizer,
        )

    # -- the run ---------------------------------------------------------------------------------------------------

    async def fit(self) -> dict[str, Any]:
        """Train to the end of the plan; returns how it ended and the last values of all metrics."""
        config = self.config
        if config.trainer.val_before_train and self.first_step == 1:
            self.recorder.publish(self.publisher.version, await self.maybe_run(self.publisher.version, forced=True))
        if config.trainer.get("val_only"):
            return {"reason": "val_only", "metrics": self.recorder.latest}
        self.loop = TrainLoop(
            source=self.source,
            world=self.world,
            publisher=self.publisher,
            validation=self,
            checkpoints=self.checkpoints,
            recorder=self.recorder,
            first_step=self.first_step,
            last_step=self.plan.total_steps,
        )
        if self._stop_wanted:
            self.loop.stop.set()
        try:
            reason = await self.loop.run()
        finally:
            await asyncio.to_thread(self.tracking.close)
        return {"reason": reason, "version": self.publisher.version, "metrics": self.recorder.latest}

    async def maybe_run(self, version: int, *, final: bool = False, forced: bool = False) -> Metrics:
        """Validate every `test_freq` versions, before training, and at the end (the validation part of the loop)."""
        frequency = self.config.trainer.test_freq or 0
        due = frequency > 0 and ((version > 0 and version % frequency == 0) or final)
        if not (due or forced) or (final and self._validated == version):
            return {}
        result = await self._ask("do_validate", version, deadline_s=VALIDATION_DEADLINE_S)
        self._validated = version
        if result.val_generations:
            self.tracking.log_generations(result.val_generations, version)
        return (result.metrics or {}) | result.timing_raw

    _validated: int | None = None

    async def request_stop(self) -> None:
        """Finish the step in progress, save, and end."""
        self._stop_wanted = True
        if self.loop is not None:
            self.loop.stop.set()

    async def _rollout_state(self) -> tuple[dict[str, Any], bytes]:
        return await self._ask("snapshot")

    def _trainer_state(self) -> dict[str, Any]:
        return {"kl_coef": self.kl_controller.value} if self.kl_controller is not None else {}

    async def _ask(self, method: str, *args: Any, deadline_s: float = MESSAGE_DEADLINE_S) -> Any:
        return await bounded(
            getattr(self.rollouter, method).remote(*args),
            what=f"an answer to {method}",
            whom="the rollouter",
            deadline_s=deadline_s,
        )

    # -- observation -----------------------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """For the progress line."""
        return {
            "step": self.loop.current_step if self.loop else 0,
            "total_steps": self.plan.total_steps if hasattr(self, "plan") else None,
            "version": self.publisher.version if self.publisher else None,
            "metrics": dict(self.recorder.latest) if self.recorder else {},
            "waits": [wait.describe() for wait in current_waits()[:3]],
        }


# Control actors ask for no CPU: on a laptop the ranks need both.
FullyAsyncTrainer = ray.remote(num_cpus=0, max_concurrency=100)(FullyAsyncTrainerCore)  # type: ignore[call-overload]  # not in Ray's stub
