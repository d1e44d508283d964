# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`shm`: trainer and rollout ranks on one host; one arena of shared memory, many readers."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import torch

from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry, Kwargs
from verl.errors import ConfigError, TransportError
from verl.launch_info import LaunchInfo
from verl.transport.receiver import BucketedWeightReceiver
from verl.transport.sender import BucketedWeightSender
from verl.transport.stats import DEFAULT_DEADLINE_S, TransferStats
from verl.transport.streams import Weights, as_async, drain


class ShmMember(msgspec.Struct, frozen=True):
    """What prepare answers: the host, and on the master the address of the update's socket."""

    host: str
    handle: str | None = None


@CheckpointEngineRegistry.register("shm")
class ShmCheckpointEngine(CheckpointEngine):
    """The transport of one rollout worker, with every rollout rank as a receiver."""

    def __init__(self, bucket_size: int, is_master: bool = False, deadline_s: float = DEFAULT_DEADLINE_S) -> None:
        self.bucket_size = bucket_size
        self.is_master = is_master
        self.deadline_s = deadline_s
        self.rank: int | None = None
        self._handle: str | None = None
        self._receivers = 0

    def prepare(self) -> ShmMember:
        host = socket.gethostname()
        if not self.is_master:
            return ShmMember(host)
        info = LaunchInfo.from_env()
        info.ensure_run_dir()
        return ShmMember(host, f"ipc://{info.socket_path(f'ce-{uuid.uuid4().hex[:8]}')}")

    @classmethod
    def build_topology(
        cls, trainer_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[Kwargs, Kwargs]:
        """As the collective engine's: trainer rank 0 sends, the others consume, rollout ranks read."""
        hosts = {member.host for member in metadata}
        if len(hosts) > 1:
            raise ConfigError(
                "shared memory does not reach other hosts",
                where="actor_rollout_ref.rollout.checkpoint_engine.backend",
                got=sorted(hosts),
                expected="one host",
                remedy="set actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
            )
        handle = next((member.handle for member in metadata if member.handle), None)

        def kwargs(ranks: list[int]) -> Kwargs:
            size = len(ranks)
            return {"rank": ranks, "num_receivers": [rollout_world_size] * size, "handle": [handle] * size}

        return kwargs([0] + [-1] * (trainer_world_size - 1)), kwargs(list(range(1, rollout_world_size + 1)))

    def init_process_group(self, rank: int, num_receivers: int, handle: str) -> None:
        self.rank, self._receivers, self._handle = rank, num_receivers, handle

    def finalize(self) -> None:
        self.rank = self._handle = None

    @torch.no_grad()
    async def send_weights(self, weights: Weights, global_steps: int | None = None) -> TransferStats | None:
        stream = as_async(weights)
        if self.rank is None or self.rank > 0:
            raise TransportError("this rank does not send", got=self.rank, expected="0 or -1")
        if self.rank < 0:
            await drain(stream)
            return None
        sender = BucketedWeightSender(
            self._handle or "",
            use_shm=True,
            version=0 if global_steps is None else global_steps,
            deadline_s=self.deadline_s,
            num_receivers=self._receivers,
            bucket_bytes=self.bucket_size,
        )
        try:
            return await sender.async_send_weights(stream)
        except BaseException:
            await drain(stream)
            raise

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        if self.rank is None or self._handle is None:
            raise TransportError("the engine is not connected", remedy="call init_process_group first")
        receiver = BucketedWeightReceiver(
            self._handle, torch.device("cpu"), True, self.deadline_s, version=global_steps, rank=self.rank
        )
        buckets = receiver.buckets()
        try:
            # The receiver waits in a thread of its own; one bucket is here while the caller handles it.
            while (tensors := await asyncio.to_thread(next, buckets, None)) is not None:
                for item in tensors:
                    yield item
        finally:
            buckets.close()
