# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The synchronous trainer: generate, train, publish, in the same devices, one after the other."""

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import torch
from omegaconf import DictConfig

from verl.algorithms.advantages import AdvantageEstimator
from verl.algorithms.kl import get_kl_controller
from verl.checkpoint_engine.manager import CheckpointEngineManager
from verl.config import RunConfig, build_config
from verl.config.validate import data_parallel_size
from verl.experimental.agent_loop.manager import AgentLoopManager
from verl.experimental.reward_loop.reward_loop import RewardLoopManager
from verl.protocol import DataProto
from verl.single_controller.ray import RayWorkerGroup, ResourcePoolManager
from verl.tracking import Tracking, cut_after
from verl.tracking.rollout_dump import dump_generations
from verl.trainer.ppo.batch_source import balance_batch
from verl.trainer.ppo.checkpointing import CheckpointKeeper, find_resume_folder, folder_version, read_rollout_state
from verl.trainer.ppo.generate_now import GenerateNow, PublishEveryStep
from verl.trainer.ppo.loop import PlacedSource, TrainLoop
from verl.trainer.ppo.metric_aggregator import OneStep
from verl.trainer.ppo.recorder import StepRecorder
from verl.trainer.ppo.setup import build_worker_groups, with_total_steps
from verl.trainer.ppo.steps import (
    STEPS,
    Metrics,
    World,
    apply_kl_penalty,
    compute_advantage,
    compute_response_mask,
)
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.validation import validate
from verl.utils.dataset.loader import make_train_loader, make_val_loader
from verl.utils.dataset.rl_dataset import create_rl_dataset
from verl.utils.rollout_skip import RolloutSkip
from verl.utils.trace import set_up_trace
from verl.waits import current_waits
from verl.workers.rollout.llm_server import LLMServerManager

__all__ = [
    "AdvantageEstimator",
    "RayPPOTrainer",
    "ResourcePoolManager",
    "Role",
    "apply_kl_penalty",
    "compute_advantage",
    "compute_response_mask",
]

logger = logging.getLogger(__name__)

# The role under which the policy trains: alone, with the rollout in its processes, or with the reference as well.
POLICY_ROLES = (Role.ActorRolloutRef, Role.ActorRollout, Role.Actor)


class RayPPOTrainer:
    """Colocated synchronous PPO and its relatives.

    A recipe passes other `steps`, or overrides one of the public methods. `self.config` is the caller's own config,
    and may be edited until `init_workers` builds the typed one from it.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        role_worker_mapping: dict[Role, type],
        resource_pool_manager: ResourcePoolManager,
        ray_worker_group_cls: type[RayWorkerGroup] = RayWorkerGroup,
        processor: Any = None,
        train_dataset: Any = None,
        val_dataset: Any = None,
        collate_fn: Any = None,
        train_sampler: Any = None,
        device_name: str | None = None,
        steps: tuple[Any, ...] = STEPS,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.processor = processor
        self.role_worker_mapping = role_worker_mapping
        self.resource_pool_manager = resource_pool_manager
        self.ray_worker_group_cls = ray_worker_group_cls
        self.device_name = device_name
        self.steps = steps
        self.train_dataset = train_dataset
        self.val_dataset = val_dataset
        self.collate_fn = collate_fn
        self.train_sampler = train_sampler
        self.loop: TrainLoop | None = None
        self.global_steps = 0
        # Servers, agent loops and the training loop live on one event loop, from init_workers to the end of fit.
        self._runner = asyncio.Runner()

    # -- start-up --------------------------------------------------------------------------------------------------

    def init_workers(self) -> None:
        """Build the typed config, then data, worker groups, servers and agent loops."""
        self.typed = (
            self.config
            if isinstance(self.config, RunConfig)
            else build_config(_as_dict_config(self.config), unknown="keep")
        )
        set_up_trace(f"{self.typed.trainer.default_local_dir}/trace", "trainer")
        self._make_loaders()
        self.typed = with_total_steps(self.typed, self.total_training_steps)
        self._runner.run(self._init_workers())

    def _make_loaders(self) -> None:
        data = self.typed.data
        if self.train_dataset is None:
            self.train_dataset = create_rl_dataset(
                data.train_files, data, self.tokenizer, self.processor, True, data.train_max_samples
            )
        if self.val_dataset is None:
            self.val_dataset = create_rl_dataset(
                data.val_files, data, self.tokenizer, self.processor, False, data.val_max_samples
            )
        size = data.get("gen_batch_size") or data.train_batch_size
        self.train_dataloader = make_train_loader(
            self.train_dataset, data, batch_size=size, sampler=self.train_sampler, collate=self.collate_fn
        )
        self.val_dataloader = make_val_loader(self.val_dataset, data, collate=self.collate_fn)
        by_epochs = len(self.train_dataloader) * self.typed.trainer.total_epochs
        limit = self.typed.trainer.total_training_steps
        self.total_training_steps = by_epochs if limit is None else min(limit, by_epochs)

    async def _init_workers(self) -> None:
        config = self.typed
        groups = await build_worker_groups(
            config, self.role_worker_mapping, self.resource_pool_manager, self.ray_worker_group_cls
        )
        self.actor_rollout_wg = next(groups[role] for role in POLICY_ROLES if role in groups)
        self.ref_policy_wg = groups.get(Role.RefPolicy) or groups.get(Role.ActorRolloutRef)
        self.critic_wg = groups.get(Role.Critic)
        reward, servers = await asyncio.gather(asyncio.to_thread(RewardLoopManager, config), self._start_servers())
        self.async_rollout_manager = await AgentLoopManager.create(
            config,
            llm_client=servers.client(partial_rollout=False),
            reward_loop_worker_handles=reward.reward_loop_worker_handles,
        )
        self.checkpoint_manager = CheckpointEngineManager(
            config=config.actor_rollout_ref.rollout.checkpoint_engine,
            trainer=self.actor_rollout_wg,
            replicas=servers.replicas,
        )
        self._make_source_and_publisher()
        self.kl_ctrl_in_reward = (
            get_kl_controller(config.algorithm.kl_ctrl) if config.algorithm.use_kl_in_reward else None
        )
        self.checkpoints = CheckpointKeeper(
            config.trainer,
            {"actor": self.actor_rollout_wg} | ({"critic": self.critic_wg} if self.critic_wg else {}),
            self._loader_state,
            lambda: {"kl_coef": self.kl_ctrl_in_reward.value} if self.kl_ctrl_in_reward else {},
        )

    async def _start_servers(self) -> LLMServerManager:
        """The rollout's servers: here in the processes that train."""
        return await LLMServerManager.create(self.typed, worker_group=self.actor_rollout_wg)

    def _make_source_and_publisher(self) -> None:
        """Where batches come from, and when weights are published."""
        self.source: PlacedSource = self._generate_now(self.checkpoint_manager.sleep_replicas)
        self.publisher = PublishEveryStep(
            self.checkpoint_manager, lambda version: setattr(self.source, "version", version)
        )

    def _generate_now(self, after_generation: Callable[[], Awaitable[Any]]) -> GenerateNow:
        skip = RolloutSkip(self.typed, self.async_rollout_manager)
        skip.wrap_generate_sequences()
        return GenerateNow(
            self.typed,
            self.train_dataloader,
            self.async_rollout_manager,
            after_generation,
            data_parallel_size(self.typed),
            skip,
        )

    # -- the run ---------------------------------------------------------------------------------------------------

    def fit(self) -> dict[str, Any]:
        """Train to the end; returns the last values of all metrics."""
        try:
            return self._runner.run(self._fit())
        finally:
            self._runner.close()

    async def _fit(self) -> dict[str, Any]:
        config = self.typed
        self.global_steps = await self._load_checkpoint()
        self.recorder = self._make_recorder()
        await self.publisher.publish(self.global_steps)
        if config.trainer.val_before_train and self.global_steps == 0:
            self.recorder.publish(0, await self._validate())
            if config.trainer.val_only:
                return self.recorder.latest
        self.loop = TrainLoop(
            source=self.source,
            world=self._world(),
            publisher=self.publisher,
            validation=self,
            checkpoints=self.checkpoints,
            recorder=self.recorder,
            first_step=self.global_steps + 1,
            last_step=self.total_training_steps,
            steps=self.steps,
        )
        try:
            await self.loop.run()
            self.global_steps = self.publisher.version
        finally:
            await asyncio.to_thread(self.tracking.close)
        return self.recorder.latest

    def _world(self) -> World:
        config = self.typed
        uses_ref = config.algorithm.use_kl_in_reward or config.actor_rollout_ref.actor.use_kl_loss
        return World(
            config=config,
            actor=self.actor_rollout_wg,
            ref=self.ref_policy_wg if uses_ref else None,
            critic=self.critic_wg,
            kl_controller=self.kl_ctrl_in_reward,
        )

    def _make_recorder(self) -> StepRecorder:
        config = self.typed
        self.tracking = Tracking(
            project_name=config.trainer.project_name,
            experiment_name=config.trainer.experiment_name,
            default_backend=config.trainer.logger,
            config=config.raw,
            resume_step=self.global_steps or None,
        )
        return StepRecorder(
            config,
            self.tracking,
            OneStep(),
            num_devices=self._num_devices(),
            use_critic=self.critic_wg is not None,
            tokenizer=self.tokenizer,
        )

    def _num_devices(self) -> int:
        """Devices of trainer and rollout together, for figures per device."""
        return self.resource_pool_manager.get_n_gpus()

    async def maybe_run(self, version: int, *, final: bool = False) -> Metrics:
        """Validate every `test_freq` steps and at the end (the validation part of the loop)."""
        frequency = self.typed.trainer.test_freq or 0
        due = frequency > 0 and (version % frequency == 0 or final)
        return await self._validate() if due and self._validated != version else {}

    _validated: int | None = None

    async def _validate(self) -> Metrics:
        version = self.publisher.version
        metrics, generations = await validate(
            self.val_dataloader, self.async_rollout_manager, self.typed, self.tokenizer, version
        )
        self._validated = version
        if generations:
            self.tracking.log_generations(generations, version)
        return metrics

    # -- observation ---------------------------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Finish the step in progress, save, and end; may be called from another thread."""
        if self.loop is not None:
            self._runner.get_loop().call_soon_threadsafe(self.loop.stop.set)

    def status(self) -> dict[str, Any]:
        """For the progress line."""
        if self.loop is None:
            return {"phase": "loading models and servers"}
        metrics = self.recorder.latest
        waits = current_waits()
        return {
            "step": self.loop.current_step,
            "total_steps": self.total_training_steps,
            "policy_version": self.publisher.version,
            "reward": metrics.get("critic/score/mean"),
            "accuracy": next((value for name, value in metrics.items() if name.startswith("val-core/")), None),
            "tokens_per_s": metrics.get("perf/throughput"),
            "waiting_for": waits[0].describe() if waits else None,
        }

    # -- checkpoint ------------------------------------------------------------------------------------------------

    async def _load_checkpoint(self) -> int:
        """Load what `trainer.resume_mode` points to; returns the step it was written after."""
        folder = find_resume_folder(self.typed.trainer)
        if folder is None:
            return 0
        state = await self.checkpoints.load(folder)
        position, loader = read_rollout_state(folder)
        self.source.restore(position, torch.load(io.BytesIO(loader), weights_only=False))
        if self.kl_ctrl_in_reward is not None and "kl_coef" in state:
            self.kl_ctrl_in_reward.value = state["kl_coef"]
        version = folder_version(folder)
        await asyncio.to_thread(
            cut_after,
            self.typed.trainer.default_local_dir,
            version=version,
            step=version,
            rollout_dir=self.typed.trainer.rollout_data_dir,
            validation_dir=self.typed.trainer.validation_data_dir,
        )
        return version

    async def _save_checkpoint(self) -> None:
        """Save now, whatever `save_freq` says (for recipes)."""
        await self.checkpoints.save(self.publisher.version, self.publisher.version)

    async def _loader_state(self) -> tuple[dict[str, Any], bytes]:
        position, loader = self._train_place()
        buffer = io.BytesIO()
        torch.save(loader, buffer)
        return position, buffer.getvalue()

    def _train_place(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Where the data is read on after a resume: the source's plain state, and the loader's."""
        return self.source.position(), self.train_dataloader.state_dict()

    # -- helpers that recipes call -----------------------------------------------------------------------------------

    def _dump_generations(
        self,
        inputs: list[str],
        outputs: list[str],
        gts: list[Any],
        scores: list[Any],
        reward_extra_infos_dict: dict[str, list[Any]],
        dump_path: str,
    ) -> None:
        """Write rows to `<dump_path>/<global step>.jsonl`; numbers of any library become JSON numbers."""
        extras = {key: values for key, values in reward_extra_infos_dict.items() if len(values) == len(inputs)}
        dump_generations(
            dump_path, self.global_steps, inputs=inputs, outputs=outputs, gts=gts, scores=scores, extras=extras
        )

    def _balance_batch(self, batch: DataProto, metrics: Metrics, logging_prefix: str = "global_seqlen") -> None:
        """Reorder the batch so that the ranks get about the same number of tokens."""
        metrics |= balance_batch(batch, data_parallel_size(self.typed), logging_prefix)


def _as_dict_config(config: Any) -> DictConfig:
    return config if isinstance(config, DictConfig) else DictConfig(config)
