# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Workers of the single controller: an engine on each rank, called as a group.

All methods are plain functions, so that their Ray actors stay single-threaded.
"""

import asyncio
import inspect
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from verl.checkpoint_engine import CheckpointEngine
from verl.checkpoint_engine.base import new_engine
from verl.errors import ConfigError, UnsupportedError
from verl.launch_info import LaunchInfo
from verl.platform import current_platform
from verl.protocol import DataProto
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.single_controller.base.worker import Worker
from verl.utils.distributed import initialize_global_process_group
from verl.utils.import_utils import import_external_libs
from verl.workers.engine import BaseEngine, EngineRegistry
from verl.workers.engine.base import LossFunction
from verl.workers.engine.flops import FlopsCounter, model_flops_utilization
from verl.workers.engine_settings import (
    EngineSettings,
    actor_settings,
    critic_settings,
    reference_settings,
    training_worker_settings,
)
from verl.workers.rollout.base import get_rollout_class
from verl.workers.utils.losses import ppo_loss, value_loss

# Names the weights that produced `old_log_probs`; the update compares it with the weights it starts from.
OLD_LOG_PROBS_WEIGHTS = "old_log_probs_weights_id"
# In a batch's meta_info: its log-probs come with metrics. A recipe that unites the answer with a batch asks for none.
WITH_METRICS = "with_metrics"

Metrics = dict[str, list[float]]


class EngineRole:
    """One model on this rank, with its loss and how its batches are cut."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        import_external_libs(settings.model_config.get("external_lib"))
        self.engine: BaseEngine = EngineRegistry.new(
            settings.model_type,
            settings.strategy,
            model_config=settings.model_config,
            engine_config=settings.engine_config,
            optimizer_config=settings.optimizer_config,
            checkpoint_config=settings.checkpoint_config,
        )
        self.engine.initialize()
        self.flops = None if self.engine.hf_config is None else FlopsCounter(self.engine.hf_config)
        self.loss_fn: LossFunction | None = settings.loss_fn

    def infer(self, data: DataProto, outputs: frozenset[str]) -> DataProto:
        """`outputs` as `[B, T]` tensors."""
        with self.engine.eval_mode():
            return self.engine.infer_batch(self._with_meta(data, {}), outputs)

    def train(self, data: DataProto) -> Metrics:
        """`ppo_epochs` passes in mini-batches; each metric as a list over the optimizer steps, `lr` of the last.

        `mfu` is that of all passes; it is left out where model or device are not known.
        """
        if self.loss_fn is None:
            raise ConfigError("no loss function", remedy="call set_loss_fn before the first update")
        loss_fn = self._loss_for(data)
        facts = {"calculate_entropy": self.settings.needs_entropy}
        steps: list[dict[str, float]] = []
        started_s = time.perf_counter()
        with self.engine.train_mode():
            for rows in self._mini_batches(data):
                mini = data if len(rows) == len(data) else data.select_idxs(rows)
                steps.append(self.engine.train_batch(self._with_meta(mini, facts), loss_fn))
        metrics = {name: [step[name] for step in steps] for name in steps[0]}
        mfu = self.utilization(data, started_s, passes=self.settings.epochs)
        return metrics | {"lr": metrics["lr"][-1:]} | ({"mfu": mfu} if mfu else {})

    def utilization(
        self, data: DataProto, started_s: float, passes: int = 1, forward_only: bool = False
    ) -> list[float]:
        """Model FLOPs utilisation of this rank over its rows since `started_s`; empty where it is not known."""
        if self.flops is None or "attention_mask" not in data.batch:
            return []
        current_platform().synchronize()
        seconds = time.perf_counter() - started_s
        lengths = data.batch["attention_mask"].sum(-1).tolist() * passes
        # Ranks that share rows (sequence parallelism) share the work.
        sharing = dist.get_world_size() // self.engine.get_data_parallel_size()
        mfu = model_flops_utilization(self.flops, lengths, seconds, sharing, forward_only)
        return [] if mfu is None else [mfu]

    def _with_meta(self, data: DataProto, facts: dict[str, Any]) -> DataProto:
        """The same batch with the engine's facts; the caller's meta_info stays as it is."""
        facts = {"temperature": self.settings.temperature, **data.meta_info, **facts}
        return replace(data, meta_info=facts)

    def _loss_for(self, data: DataProto) -> LossFunction:
        """The loss; where it may, with the present log-probs in the place of recomputed ones.

        With one optimizer step, log-probs that were recomputed from the very weights of this step are the present
        ones up to rounding, and the ratio must be exactly 1. Behaviour log-probs and those of an earlier version
        carry no mark of these weights and stay as they are. A critic gives no log-probs, and the mark is never of its
        weights.
        """
        if self.settings.model_type != "language_model":
            return self.loss_fn
        single_step = self.settings.epochs == 1 and len(data) <= self._rows_per_mini_batch(data)
        recomputed = data.meta_info.get(OLD_LOG_PROBS_WEIGHTS)
        if single_step and recomputed is not None and recomputed == self.engine.weights_id:
            return partial(_on_policy, self.loss_fn)
        return self.loss_fn

    def _rows_per_mini_batch(self, data: DataProto) -> int:
        total, ranks = self.settings.trajectories_per_mini_batch, self.engine.get_data_parallel_size()
        if total is None:
            return len(data)
        if total % ranks:
            raise ConfigError(
                "the mini-batch does not divide over the ranks",
                where="ppo_mini_batch_size x rollout.n",
                got=f"{total} trajectories over {ranks} ranks",
                remedy=f"choose ppo_mini_batch_size so that trajectories are a multiple of {ranks}",
            )
        return total // ranks

    def _mini_batches(self, data: DataProto) -> Iterator[torch.Tensor]:
        """Row indices of each optimizer step; the last mini-batch of a pass may be smaller."""
        size = self._rows_per_mini_batch(data)
        for epoch in range(self.settings.epochs):
            if self.settings.shuffle:
                # Another order each time, and the same one when a run is resumed.
                seed = (self.settings.shuffle_seed, int(data.meta_info.get("global_step", 0)), epoch)
                generator = torch.Generator().manual_seed(hash(seed) % 2**63)
                order = torch.randperm(len(data), generator=generator)
            else:
                order = torch.arange(len(data))
            yield from order.split(size)


def _on_policy(
    loss_fn: LossFunction, model_output: dict[str, torch.Tensor], micro: DataProto, **counts: Any
) -> tuple[torch.Tensor, dict[str, Any]]:
    current: dict[str, Any] = {**dict(micro.batch.items()), "old_log_probs": model_output["log_probs"].detach()}
    return loss_fn(model_output, DataProto.from_dict(current, micro.non_tensor_batch, micro.meta_info), **counts)


def train_result(metrics: Metrics, prefix: str) -> DataProto:
    """An update's answer: its metrics, each under `prefix`."""
    named = {name if name.startswith(prefix) else prefix + name: values for name, values in metrics.items()}
    return DataProto(meta_info={"metrics": named})


class TrainingWorker(Worker):
    """One model that trains by itself: the critic, or a policy under supervision.

    `config` is a `TrainingWorkerConfig`, or the critic's configuration. `reset` builds the model.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        initialize_global_process_group()
        self.settings = training_worker_settings(config) if "model_config" in config else critic_settings(config)
        if self.settings.loss_fn is None and self.settings.model_type == "value_model":
            self.settings = replace(self.settings, loss_fn=partial(value_loss, config))
        self.role: EngineRole | None = None
        self._register_dispatch_collect_info("train", self.rank, True)

    @property
    def engine(self) -> BaseEngine:
        """The engine; `reset` builds it."""
        return self._role.engine

    @property
    def _role(self) -> EngineRole:
        if self.role is None:
            raise ConfigError("the worker has no model yet", remedy="call reset first")
        return self.role

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def reset(self) -> None:
        """Build the model, or build it again from its path."""
        self.role = EngineRole(self.settings)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def to(self, device: str, model: bool = True, optimizer: bool = True, grad: bool = True) -> None:
        """Move the named parts to "cpu" or to the device."""
        self.engine.to(device, model, optimizer, grad)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_loss_fn(self, loss_fn: LossFunction) -> None:
        """The loss of later updates."""
        self._role.loss_fn = loss_fn

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"))
    def train_batch(self, data: DataProto) -> DataProto:
        """All passes over one batch; metrics in `meta_info["metrics"]`."""
        return DataProto(meta_info={"metrics": self._role.train(data)})

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"))
    def infer_batch(self, data: DataProto) -> DataProto:
        """`values` of a value model, `log_probs` and `entropy` of a policy, each `[B, T]`."""
        wanted = {"values"} if self.settings.model_type == "value_model" else {"log_probs", "entropy"}
        return self._role.infer(data, frozenset(wanted))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, global_step: int = 0, max_ckpt_to_keep: int | None = None
    ) -> None:
        """Write this rank's files; see the engine."""
        self.engine.save_checkpoint(local_path, hdfs_path, global_step, max_ckpt_to_keep)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False
    ) -> None:
        """Read this rank's files; see the engine."""
        self.engine.load_checkpoint(local_path, hdfs_path, del_local_after_load)


class ActorRolloutRefWorker(Worker):
    """Policy, reference policy and the trainer's end of the weight transfer, as `role` says.

    `role` joins `actor`, `rollout` and `ref` by underscores; `rollout` adds the adapter of a colocated server.
    """

    ROLES = ("actor", "ref", "rollout", "actor_rollout", "actor_ref", "actor_rollout_ref")

    def __init__(self, config: Any, role: str, distillation_config: Any = None, **kwargs: Any) -> None:
        super().__init__()
        if distillation_config is not None and distillation_config.get("enabled", False):
            raise UnsupportedError(
                "on-policy distillation is left out", where="distillation.enabled", remedy="set it to false"
            )
        if role not in self.ROLES:
            raise ConfigError("unknown role", got=role, expected=f"one of {', '.join(self.ROLES)}")
        self.config = config
        self.parts = frozenset(role.split("_"))
        self.actor: EngineRole | None = None
        self.ref: EngineRole | None = None
        self.rollout: Any = None
        self.checkpoint_engine: CheckpointEngine | None = None
        initialize_global_process_group(config.get("nccl_timeout"))
        # Without sequence parallelism every rank has a share of its own and speaks for it.
        for mesh_name, part in (("actor", "actor"), ("ref", "ref"), ("rollout", "rollout")):
            if part in self.parts:
                self._register_dispatch_collect_info(mesh_name, self.rank, True)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Build what the role asks for; with an adapter the actor itself serves as reference."""
        if "actor" in self.parts:
            settings = actor_settings(self.config)
            self.actor = EngineRole(replace(settings, loss_fn=partial(ppo_loss, self.config.actor)))
            if self.config.rollout.checkpoint_engine.backend not in (None, "naive"):
                self.checkpoint_engine = new_engine(self.config.rollout.checkpoint_engine, is_master=self.rank == 0)
        if "ref" in self.parts:
            shares_actor = self.actor is not None and self.config.model.get("lora_rank", 0) > 0
            self.ref = None if shares_actor else EngineRole(reference_settings(self.config))
        if "rollout" in self.parts:
            # The rollout's sockets live there; this process binds them.
            LaunchInfo.from_env().ensure_run_dir()
            rollout = self.config.rollout
            self.rollout = get_rollout_class(rollout.name, rollout.mode)(config=rollout, model_config=self.config.model)

    @property
    def _actor(self) -> EngineRole:
        if self.actor is None:
            raise ConfigError("this worker has no actor", got=sorted(self.parts), remedy="call init_model on an actor")
        return self.actor

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_loss_fn(self, loss_fn: LossFunction) -> None:
        """The loss of later updates."""
        self._actor.loss_fn = loss_fn

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def to(self, device: str, model: bool = True, optimizer: bool = True, grad: bool = True) -> None:
        """Move the actor's named parts to "cpu" or to the device."""
        self._actor.engine.to(device, model, optimizer, grad)

    # ---- work -------------------------------------------------------------------------------------------------------

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_log_prob(self, data: DataProto) -> DataProto:
        """`old_log_probs` and `entropys`, `[B, T]`; meta_info names the weights that gave them.

        With `actor.calculate_sum_pi_squared` also `sum_pi_squared`, for the optimal token baselines.
        """
        started_s = time.perf_counter()
        extras = {"sum_pi_squared"} if self.config.actor.get("calculate_sum_pi_squared", False) else set()
        out = self._actor.infer(data, frozenset({"log_probs", "entropy"} | extras))
        out.rename(["log_probs", "entropy"], ["old_log_probs", "entropys"])
        out.meta_info[OLD_LOG_PROBS_WEIGHTS] = self._actor.engine.weights_id
        if data.meta_info.get(WITH_METRICS, False):
            mfu = self._actor.utilization(data, started_s, forward_only=True)
            out.meta_info["metrics"] = {"perf/mfu/actor_infer": mfu} if mfu else {}
        return out

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="ref"))
    def compute_ref_log_prob(self, data: DataProto) -> DataProto:
        """`ref_log_prob` `[B, T]`; without a model of its own, from the actor without its adapter."""
        if self.ref is not None:
            out = self.ref.infer(data, frozenset({"log_probs"}))
        else:
            with self._actor.engine.disable_adapter():
                out = self._actor.infer(data, frozenset({"log_probs"}))
        return out.rename("log_probs", "ref_log_prob")

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def update_actor(self, data: DataProto) -> DataProto:
        """All passes over one batch; `actor/…` metrics, one value an optimizer step, in `meta_info["metrics"]`."""
        return train_result(self._actor.train(data), "actor/")

    # ---- checkpoints ------------------------------------------------------------------------------------------------

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, global_step: int = 0, max_ckpt_to_keep: int | None = None
    ) -> None:
        """Write this rank's files of the actor; see the engine."""
        self._actor.engine.save_checkpoint(local_path, hdfs_path, global_step, max_ckpt_to_keep)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False
    ) -> None:
        """Read this rank's files of the actor; see the engine."""
        self._actor.engine.load_checkpoint(local_path, hdfs_path, del_local_after_load)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_model_to_cpu(self, n: int) -> None:
        """Keep a host copy of the actor's weights under `n`."""
        self._actor.engine.save_model_to_cpu(n)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def restore_model_from_cpu(self, n: int) -> None:
        """Put the copy `n` back."""
        self._actor.engine.restore_model_from_cpu(n)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def clear_cpu_model(self, n: int) -> None:
        """Forget the copy `n`."""
        self._actor.engine.clear_cpu_model(n)

    # ---- weights to the rollout -------------------------------------------------------------------------------------

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def update_weights(self, global_steps: int | None = None) -> Any:
        """Send the actor's weights as policy version `global_steps`: to the checkpoint engine, or to the server beside
        this worker.

        Every rank takes part in every gather, also after its own or the receiver's failure: a rank that stopped
        would leave the others waiting in a collective.
        """
        weights, peft_config = self._actor.engine.get_per_tensor_param()
        stream = WeightStream(weights)
        try:
            if self.checkpoint_engine is not None:
                return _run(_send(self.checkpoint_engine, stream, global_steps))
            if self.rollout is None:
                raise ConfigError(
                    "there is nobody to send weights to",
                    where="rollout.checkpoint_engine.backend",
                    got=self.config.rollout.checkpoint_engine.backend,
                    remedy="choose nccl, gloo, shm or disk, or give the worker the rollout role",
                )
            return _run(_update_colocated(self.rollout, stream, peft_config, global_steps))
        finally:
            stream.drain()

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of this rank's checkpoint engine."""
        if self.checkpoint_engine is None:
            raise ConfigError(
                "this worker has no checkpoint engine", where="rollout.checkpoint_engine.backend", got="naive"
            )
        return _run(getattr(self.checkpoint_engine, method)(*args, **kwargs))


class WeightStream:
    """An iterator over weights that its consumer cannot close, so that the rest can still be drained."""

    def __init__(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        self._weights = weights

    def __iter__(self) -> "WeightStream":
        return self

    def __next__(self) -> tuple[str, torch.Tensor]:
        return next(self._weights)

    def drain(self) -> None:
        """Run through what is left."""
        for _ in self._weights:
            pass


# Functions, not methods: one coroutine method would make the Ray actor asynchronous, and its other methods would run
# inside a loop.
async def _send(engine: CheckpointEngine, weights: WeightStream, version: int | None) -> Any:
    accepts_version = "global_steps" in inspect.signature(engine.send_weights).parameters
    return await engine.send_weights(weights, **({"global_steps": version} if accepts_version else {}))


async def _update_colocated(rollout: Any, weights: WeightStream, peft_config: Any, version: int | None) -> Any:
    await rollout.resume(["weights"])
    stats = await rollout.update_weights(weights, global_steps=version, peft_config=peft_config)
    await rollout.resume(["kv_cache"])
    return stats


def _run(result: Any) -> Any:
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result
