# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`CheckpointEngineWorker`: sits beside one worker of a standalone replica and passes new weights on to it."""

import asyncio
from typing import Any

from verl.checkpoint_engine.base import CheckpointEngine, new_engine
from verl.launch_info import LaunchInfo
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.base.worker import Worker
from verl.transport.streams import chain, drain
from verl.workers.rollout.base import BaseRollout, get_rollout_class


class CheckpointEngineWorker(Worker):
    """One per rollout rank: receives the whole model from the trainer, hands it to the engine worker of its rank."""

    def __init__(
        self,
        rollout_config: Any,
        model_config: Any,
        server_adapter: BaseRollout | None = None,
        *args: Any,
        replica_rank: int = -1,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        LaunchInfo.from_env().ensure_run_dir()
        self.rollout_config = rollout_config
        self.checkpoint_engine: CheckpointEngine = new_engine(rollout_config.checkpoint_engine, is_master=False)
        self.server_adapter: Any = server_adapter or get_rollout_class(
            rollout_config.name, rollout_config.get("mode") or "async"
        )(config=rollout_config, model_config=model_config, device_mesh=None, replica_rank=replica_rank)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def update_weights(self, global_steps: int | None = None) -> dict[str, Any]:
        """Receive version `global_steps` and stage it in the engine worker; the manager has it applied."""
        return asyncio.run(_pass_on(self.checkpoint_engine, self.server_adapter, global_steps))

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of this rank's checkpoint engine."""
        return getattr(self.checkpoint_engine, method)(*args, **kwargs)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def get_replica_rank(self) -> int:
        """The replica that this worker belongs to."""
        return self.server_adapter.replica_rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def is_leader_rank(self) -> bool:
        """Whether this worker speaks to the replica's server."""
        return self.server_adapter.rollout_rank == 0


# Not a method: one coroutine method would make the Ray actor asynchronous, and its other methods run inside a loop.
async def _pass_on(engine: CheckpointEngine, adapter: Any, global_steps: int | None) -> dict[str, Any]:
    stream = engine.receive_weights()
    try:
        return await adapter.update_weights(stream, global_steps=global_steps, apply=False)
    except BaseException as error:
        # A broadcast needs every rank: the other replicas get their weights before this one reports.
        try:
            await drain(stream)
        except Exception as later:
            chain(error, later)
        raise
