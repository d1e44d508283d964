# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old names of the workers, for recipes that put them into their role tables; they run on the engine."""

from collections.abc import Awaitable
from typing import Any

from verl.errors import UnsupportedError
from verl.protocol import DataProto
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.single_controller.base.profiler_extension import DistProfilerExtension
from verl.utils.memory_utils import dump_memory_snapshot
from verl.utils.profiler.dist_profiler import DistProfiler
from verl.workers import engine_workers

__all__ = ["ActorRolloutRefWorker", "AsyncActorRolloutRefWorker", "CriticWorker"]

# What recipes override in the old workers. The engine never calls it, so that an override would silently do nothing.
_OLD_HOOKS = ("_build_model_optimizer", "_build_critic_model_optimizer", "_build_rollout")


def _refuse_old_hooks(cls: type) -> None:
    for name in _OLD_HOOKS:
        if name in vars(cls):
            raise UnsupportedError(
                "nobody calls this method of the old workers",
                where=f"{cls.__name__}.{name}",
                remedy="give the loss by set_loss_fn, or register an engine with verl.workers.engine.EngineRegistry",
            )


class ActorRolloutRefWorker(engine_workers.ActorRolloutRefWorker, DistProfilerExtension):
    """`verl.workers.engine_workers.ActorRolloutRefWorker` under its old name."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _refuse_old_hooks(cls)

    def __init__(self, config: Any, role: str, **kwargs: Any) -> None:
        super().__init__(config, role, **kwargs)
        section = config.get("actor" if "actor" in self.parts else "ref") or {}
        self.profiler = DistProfiler(self.rank, section.get("profiler"))

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="rollout"))
    def generate_sequences(self, prompts: DataProto) -> DataProto:
        """Refused, as upstream's asynchronous rollout does: servers generate, and workers only give them weights."""
        raise UnsupportedError(
            "a worker does not generate",
            where="ActorRolloutRefWorker.generate_sequences",
            remedy="call generate_sequences of verl.experimental.agent_loop.AgentLoopManager",
        )

    def rollout_mode(self) -> Awaitable[Any]:
        """Bring the weights to the server beside this worker, and wake it; to be awaited."""
        # A coroutine method would make the Ray actor asynchronous.
        return _already(self.update_weights())

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def dump_memory_snapshot(self, tag: str = "manual", sub_dir: str | None = None) -> None:
        """Write each rank's record of device memory below `profiler.save_path`; none on a CPU."""
        dump_memory_snapshot(
            out_dir=self.profiler.config.get("save_path") or "outputs/profile", tag=tag, sub_dir=sub_dir
        )


async def _already(value: Any) -> Any:
    return value


class AsyncActorRolloutRefWorker(ActorRolloutRefWorker):
    """The same; every rollout is asynchronous."""


class CriticWorker(engine_workers.TrainingWorker):
    """`verl.workers.engine_workers.TrainingWorker` with the old names of a critic's methods."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _refuse_old_hooks(cls)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Build the model."""
        self.reset()

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"))
    def compute_values(self, data: DataProto) -> DataProto:
        """`values` `[B, T]`."""
        return self.infer_batch(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"))
    def update_critic(self, data: DataProto) -> DataProto:
        """All passes over one batch; `critic/…` metrics, one value an optimizer step, in `meta_info["metrics"]`."""
        return engine_workers.train_result(self.train_batch(data).meta_info["metrics"], "critic/")
