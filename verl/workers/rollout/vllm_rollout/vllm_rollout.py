# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`ServerAdapter`: the client of a vLLM server inside a training or checkpoint-engine process, one per rank."""

import asyncio
import os
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import ray
import torch
from ray.exceptions import RayActorError, RayTaskError

from verl.errors import PeerLost, TransportError, VerlError
from verl.launch_info import LaunchInfo
from verl.platform import current_platform
from verl.transport.device_ipc import ipc_kind
from verl.transport.stats import TransferStats
from verl.transport.streams import Weights
from verl.waits import bounded, expired
from verl.workers.rollout.base import BaseRollout, rollout_world_size
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import (
    DEFAULT_DEADLINE_S,
    BucketedWeightSender,
    weight_socket_handle,
)

T = TypeVar("T")

# Pausing waits for one engine step, applying for the repacking of every layer.
CONTROL_DEADLINE_S = 120.0
APPLY_DEADLINE_S = 600.0
_POLL_S = 0.05
_HEALTH_EVERY_S = 2.0


class ServerAdapter(BaseRollout):
    """Sends this rank's copy of the weights to the vLLM worker of the same rank; rank 0 also speaks to the server."""

    def __init__(
        self,
        config: Any,
        model_config: Any,
        device_mesh: Any | None = None,
        replica_rank: int = -1,
        *,
        deadline_s: float = DEFAULT_DEADLINE_S,
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        rank = int(os.environ.get("RANK", "0"))
        local_world_size = int(os.environ.get("RAY_LOCAL_WORLD_SIZE", "1"))
        world_size = rollout_world_size(config)
        self.replica_rank = rank // world_size if replica_rank < 0 else replica_rank
        self.rollout_rank = rank % world_size
        self.node_rank = self.rollout_rank // local_world_size
        self.local_rank = self.rollout_rank % local_world_size
        self.deadline_s = deadline_s
        self._server: Any = None

    async def resume(self, tags: list[str]) -> None:
        """Bring weights or cache back into device memory, where the engine gave them up."""
        if self.config.get("free_cache_engine"):
            await self._execute_method("wake_up", args=(tags,))

    async def release(self) -> None:
        """Give up the device memory of weights and cache."""
        if self.config.get("free_cache_engine"):
            await self._execute_method("sleep")

    @torch.no_grad()
    async def update_weights(
        self, weights: Weights, global_steps: int | None = None, apply: bool = True, **kwargs: Any
    ) -> dict[str, Any]:
        """Hand over one version: begin, send, and with `apply` also pause, apply, resume.

        Without `apply` the weights are left staged and verified for whoever coordinates several replicas. Where the
        worker cannot stage them, they are applied here in any case ("applied" in the answer), since they go straight
        into the model.
        """
        version = 0 if global_steps is None else int(global_steps)
        stages = await self._begin(version, kwargs) if self.rollout_rank == 0 else True
        try:
            if stages:
                stats = await self._send(version, weights)
                if apply and self.rollout_rank == 0:
                    await self._all_staged(version)
                    await self._pause_and_apply(version)
            else:
                stats = await self._send_in_place(version, weights)
        except BaseException as error:
            if self.rollout_rank == 0:
                await self._abort(version, error)
            raise
        return {**vars(stats), "staged": stages, "applied": apply or not stages}

    async def _begin(self, version: int, kwargs: dict[str, Any]) -> bool:
        use_shm = ipc_kind(current_platform().device_type) == "none"
        options = {key: value for key, value in _adapter_options(kwargs).items() if value is not None}
        answers = await self._ask(
            "begin_weight_update", version, use_shm, self.deadline_s, deadline_s=CONTROL_DEADLINE_S, **options
        )
        mine = next((item for item in answers if item["local_rank"] == self.local_rank), None)
        if mine is None or mine["handle"] != self._get_zmq_handle():
            raise TransportError(
                "the rollout worker listens elsewhere",
                got=[item["handle"] for item in answers],
                expected=self._get_zmq_handle(),
                remedy="both sides must have the same VERL_JOB_ID, VERL_RUN_DIR and replica",
            )
        return all(item["stages"] for item in answers)

    async def _send(self, version: int, weights: Weights) -> TransferStats:
        platform = current_platform()
        device = (
            None if platform.device_type == "cpu" else torch.device(platform.device_type, platform.current_device())
        )
        sender = BucketedWeightSender(
            self._get_zmq_handle(),
            int(self.config.checkpoint_engine.update_weights_bucket_megabytes),
            ipc_kind(platform.device_type) == "none",
            version=version,
            deadline_s=self.deadline_s,
            rank=self.rollout_rank,
            device=device,
        )
        return await self._while_served(sender.async_send_weights(weights))

    async def _while_served(self, sending: Coroutine[Any, Any, T]) -> T:
        """Await a transfer; a server that has no health ends it, since a dead worker may not have introduced itself."""
        task = asyncio.create_task(sending)
        try:
            while not (await asyncio.wait([task], timeout=_HEALTH_EVERY_S))[0]:
                await self._ask("health", deadline_s=CONTROL_DEADLINE_S)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _send_in_place(self, version: int, weights: Weights) -> TransferStats:
        """The worker receives inside its apply call, so generation stops first and both run side by side."""
        await self._ask("abort_all_requests", deadline_s=CONTROL_DEADLINE_S)
        applying = asyncio.create_task(self._ask("apply_weight_update", version, deadline_s=APPLY_DEADLINE_S))
        try:
            stats = await self._send(version, weights)
        except BaseException:
            await asyncio.gather(applying, return_exceptions=True)
            raise
        await applying
        await self._ask("resume_generation", deadline_s=CONTROL_DEADLINE_S)
        return stats

    async def _all_staged(self, version: int) -> None:
        """Every worker of the replica has the version whole, before any of them applies it."""
        end = time.monotonic() + self.deadline_s
        while True:
            state = await self._ask("weight_state", deadline_s=CONTROL_DEADLINE_S)
            workers = state["workers"]
            failed = [worker["error"] for worker in workers if worker["error"]]
            if failed:
                raise TransportError("a worker of the replica did not receive the weights", got=failed[0])
            if all(worker["staged_version"] == version for worker in workers):
                return
            if time.monotonic() > end:
                raise expired(f"version {version} on all workers", self._name, self.deadline_s)
            await asyncio.sleep(_POLL_S)

    async def _pause_and_apply(self, version: int) -> None:
        await self._ask("abort_all_requests", deadline_s=CONTROL_DEADLINE_S)
        await self._ask("apply_weight_update", version, deadline_s=APPLY_DEADLINE_S)
        await self._ask("resume_generation", deadline_s=CONTROL_DEADLINE_S)

    async def _abort(self, version: int, error: BaseException) -> None:
        try:
            await self._ask(
                "abort_weight_update", version, f"{type(error).__name__}: {error}", deadline_s=CONTROL_DEADLINE_S
            )
        except (VerlError, RayTaskError) as later:
            error.add_note(f"and the server could not be told: {later}")

    # The server

    @property
    def _name(self) -> str:
        return f"{self._get_server_name_prefix()}server_{self.replica_rank}_{self.node_rank}"

    def _get_server_name_prefix(self) -> str:
        return f"{self.config.name}_"

    def _get_zmq_handle(self) -> str:
        return weight_socket_handle(LaunchInfo.from_env(), self.replica_rank, self.local_rank)

    async def _execute_method(
        self,
        method: str,
        non_block: bool = False,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the server once per replica, from rank 0; with `non_block` the answer is a task to await."""
        if self.rollout_rank != 0:
            return None
        call = self._ask(method, *args, deadline_s=timeout or CONTROL_DEADLINE_S, **(kwargs or {}))
        return asyncio.create_task(call) if non_block else await call

    async def _ask(self, method: str, *args: Any, deadline_s: float, **kwargs: Any) -> Any:
        """One call of the server; its death is PeerLost, its silence WaitTimeout, its error its own."""
        if self._server is None:
            self._server = await asyncio.to_thread(_find, self._name)
        try:
            ref = getattr(self._server, method).remote(*args, **kwargs)
            return await bounded(ref, what=method, whom=self._name, deadline_s=deadline_s)
        except RayActorError as error:
            self._server = None
            raise PeerLost(f"{self._name} has died during {method}: {error}") from error
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, VerlError) else error) from error


def _find(name: str) -> Any:
    try:
        return ray.get_actor(name)
    except ValueError as error:
        raise PeerLost(
            f"there is no rollout server {name}", remedy="start the replica before sending weights"
        ) from error


def _adapter_options(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Options of an adapter update in plain types: they cross two process boundaries."""
    peft_config = kwargs.get("peft_config")
    if not peft_config:
        return {}
    return {
        "peft_config": {key: _plain(value) for key, value in dict(peft_config).items()},
        "base_sync_done": bool(kwargs.get("base_sync_done", True)),
    }


def _plain(value: Any) -> Any:
    """PEFT keeps enums and sets in its configuration."""
    if isinstance(value, set | tuple | list):
        return sorted(value) if isinstance(value, set) else list(value)
    return getattr(value, "value", value)
