# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`nccl` (RCCL on ROCm), `hccl`, `gloo`: trainer rank 0 broadcasts buckets to every rollout rank.

The group is one of its own, a store and process-group objects beside the training world, so that rollout ranks come and
go without touching it. While one bucket travels the next one is filled. Headers travel over gloo in host memory; where
the device has a collective of its own, payloads travel over that.
"""

import asyncio
import datetime
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry, Kwargs
from verl.errors import PeerLost, TransportError, VerlError, WaitTimeout
from verl.platform import current_platform
from verl.transport.checksum import Fold, kind_for, new_checksum
from verl.transport.header import Abort, Bucket, Commit, Message, Segment, decode, encode
from verl.transport.layout import ALIGN_BYTES, Assembler, as_bytes, place, spec_of
from verl.transport.stats import TransferStats, text_of
from verl.transport.streams import Weights, as_async, drain
from verl.utils.import_utils import optional_import
from verl.waits import waiting_on

DEFAULT_DEADLINE_S = 300.0
MAX_HOST_BUFFER_BYTES = 64 << 20
"""On the host a larger buffer only leaves the cache; a device link wants the whole bound."""


class MasterMetadata(msgspec.Struct, frozen=True):
    """Where the master's store listens, and a name no other group of this job has."""

    host: str
    port: int
    group: str


@CheckpointEngineRegistry.register("gloo")
@CheckpointEngineRegistry.register("hccl")
@CheckpointEngineRegistry.register("nccl")
class CollectiveCheckpointEngine(CheckpointEngine):
    """Broadcast over torch.distributed; the backend follows the platform, whichever of the names is configured.

    Parameters
    ----------
    bucket_size : upper bound in bytes of both buffers together.
    rebuild_group : connect anew for every update instead of keeping the group.
    rollout_dtype : cast floating tensors to this before sending; None keeps each tensor's own.
    deadline_s : longest time for one broadcast.
    """

    def __init__(
        self,
        bucket_size: int,
        group_name: str = "default",
        rebuild_group: bool = False,
        is_master: bool = False,
        rollout_dtype: torch.dtype | str | None = None,
        deadline_s: float = DEFAULT_DEADLINE_S,
    ) -> None:
        self.bucket_size = bucket_size
        self.group_name = group_name
        self.rebuild_group = rebuild_group
        self.is_master = is_master
        self.rollout_dtype = getattr(torch, rollout_dtype) if isinstance(rollout_dtype, str) else rollout_dtype
        self.deadline_s = deadline_s
        self.rank: int | None = None
        self.world_size = 0
        self._store: dist.TCPStore | None = None
        self._groups: tuple[Any, Any] | None = None
        self._metadata: MasterMetadata | None = None
        self._inboxes = [torch.empty(0, dtype=torch.uint8)] * 2

    # Connecting

    def prepare(self) -> MasterMetadata | None:
        """The master opens its store on a free port."""
        self.finalize()
        if not self.is_master:
            return None
        self._store = dist.TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False, timeout=self._timeout)
        self._metadata = MasterMetadata(_own_address(), self._store.port, f"{self.group_name}-{uuid.uuid4().hex[:8]}")
        return self._metadata

    @classmethod
    def build_topology(
        cls, trainer_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[Kwargs, Kwargs]:
        """Trainer rank 0 is rank 0, rollout ranks follow; the other trainer ranks (-1) only consume the stream."""
        master = next((item for item in metadata if item is not None), None)
        if master is None:
            raise TransportError("no trainer rank is the master", remedy="create rank 0's engine with is_master=True")
        trainer_ranks = [0] + [-1] * (trainer_world_size - 1)
        rollout_ranks = list(range(1, rollout_world_size + 1))

        def kwargs(ranks: list[int]) -> Kwargs:
            return {
                "rank": ranks,
                "world_size": [rollout_world_size + 1] * len(ranks),
                "master_metadata": [master] * len(ranks),
            }

        return kwargs(trainer_ranks), kwargs(rollout_ranks)

    def init_process_group(self, rank: int, world_size: int, master_metadata: MasterMetadata) -> None:
        """Join; returns when every member has."""
        self.rank, self.world_size, self._metadata = rank, world_size, master_metadata
        if rank < 0:
            return
        where = f"{master_metadata.host}:{master_metadata.port}"
        try:
            with waiting_on("joining", f"the weight group at {where}", self.deadline_s):
                if self._store is None:
                    self._store = dist.TCPStore(
                        master_metadata.host, master_metadata.port, is_master=False, timeout=self._timeout
                    )
                self._groups = self._connect(dist.PrefixStore(master_metadata.group, self._store))
        except (RuntimeError, ValueError) as error:
            raise PeerLost(f"could not join the weight group ({error})", where=where) from error

    def _connect(self, store: dist.Store) -> tuple[Any, Any]:
        assert self.rank is not None
        control = _gloo(dist.PrefixStore("control", store), self.rank, self.world_size, self._timeout)
        backend = current_platform().collective
        if backend == "gloo":
            return control, control
        payload_store = dist.PrefixStore("payload", store)
        if backend == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = self._timeout
            return control, dist.ProcessGroupNCCL(payload_store, self.rank, self.world_size, options)
        hccl = optional_import("torch_npu._C._distributed_c10d", "checkpoint_engine.backend=hccl")
        options = hccl.ProcessGroupHCCL.Options()
        options._timeout = self._timeout
        return control, hccl.ProcessGroupHCCL(payload_store, self.rank, self.world_size, options)

    @property
    def _timeout(self) -> datetime.timedelta:
        return datetime.timedelta(seconds=self.deadline_s)

    def finalize(self) -> None:
        groups, self._groups, self._store, self.rank = self._groups, None, None, None
        self._inboxes = [torch.empty(0, dtype=torch.uint8)] * 2
        for group in {id(group): group for group in groups or ()}.values():
            if hasattr(group, "abort"):
                group.abort()

    # Sending

    @torch.no_grad()
    async def send_weights(self, weights: Weights, global_steps: int | None = None) -> TransferStats | None:
        """Broadcast from rank 0; every trainer rank consumes all of `weights`, whatever happens to the broadcast."""
        stream = as_async(weights)
        if self.rank is None:
            raise TransportError("the weight group is not connected", remedy="call init_process_group first")
        if self.rank < 0:
            await drain(stream)
            return None
        outbox = _Outbox(self, self._buffer_bytes())
        try:
            return await self._broadcast(stream, outbox, -1 if global_steps is None else global_steps)
        except BaseException as error:
            if await outbox.landed():
                await self._tell_abort(error)
            # The other trainer ranks are in the export's all-gathers; leaving now would hang them.
            await drain(stream)
            raise

    async def _broadcast(
        self, weights: AsyncIterator[tuple[str, torch.Tensor]], outbox: "_Outbox", version: int
    ) -> TransferStats:
        started = time.monotonic()
        fold = Fold()
        async for name, tensor in weights:
            await outbox.put(name, self._cast(tensor), fold)
        await outbox.flush()
        await outbox.settle()
        await self._send_header(
            Commit(version, outbox.sequence, len(fold.checksums), fold.nbytes, fold.manifest, fold.content)
        )
        return TransferStats(
            version=version,
            bytes=fold.nbytes,
            tensors=len(fold.checksums),
            buckets=outbox.sequence,
            seconds=time.monotonic() - started,
            digest=text_of(fold.content),
            medium=current_platform().collective,
        )

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.rollout_dtype is not None and tensor.is_floating_point():
            return tensor.to(self.rollout_dtype)
        return tensor

    def _buffer_bytes(self) -> int:
        half = self.bucket_size // 2
        bound = half if self.payload_device.type != "cpu" else min(half, MAX_HOST_BUFFER_BYTES)
        return max(ALIGN_BYTES, bound // ALIGN_BYTES * ALIGN_BYTES)

    @property
    def payload_device(self) -> torch.device:
        platform = current_platform()
        if platform.device_type == "cpu":
            return torch.device("cpu")
        return torch.device(platform.device_type, platform.current_device())

    async def _tell_abort(self, error: BaseException) -> None:
        """Where the group still stands, the receivers learn why; where it does not, they have noticed."""
        if self._groups is None or isinstance(error, PeerLost | WaitTimeout):
            return
        try:
            await self._send_header(Abort(f"{type(error).__name__}: {error}"))
        except VerlError as later:
            error.add_note(f"and the receivers could not be told: {later}")

    async def _send_header(self, message: Message) -> None:
        data = torch.frombuffer(bytearray(encode(message)), dtype=torch.uint8)
        await self.broadcast(0, torch.tensor([data.numel()], dtype=torch.int64), "a header's length")
        await self.broadcast(0, data, "a header")

    # Receiving

    @torch.no_grad()
    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """The tensors in the order sent; the next bucket is received while the caller handles this one's.

        Raises
        ------
        TransportError
            bytes or counts differ from what was sent, the master aborted, or it sent another version.
        """
        if self._groups is None:
            raise TransportError("the weight group is not connected", remedy="call init_process_group first")
        assembler = Assembler(kind_for(self.payload_device), self.payload_device)
        expected = 0
        pending = asyncio.create_task(self._receive_one())
        try:
            while True:
                message, payload = await pending
                if isinstance(message, Commit):
                    _check_commit(message, assembler, expected, global_steps)
                    return
                pending = asyncio.create_task(self._receive_one())
                try:
                    tensors = _take(assembler, message, payload, expected)
                except TransportError:
                    # A broadcast needs every rank: the others get their weights before this one reports.
                    await self._discard(pending)
                    raise
                expected += 1
                for item in tensors:
                    yield item
        finally:
            pending.cancel()

    async def _discard(self, pending: "asyncio.Task[tuple[Message, torch.Tensor]]") -> None:
        message, _ = await pending
        while not isinstance(message, Commit):
            message, _ = await self._receive_one()

    async def _receive_one(self) -> tuple[Message, torch.Tensor]:
        length = torch.zeros(1, dtype=torch.int64)
        await self.broadcast(0, length, "a header's length")
        data = torch.empty(int(length.item()), dtype=torch.uint8)
        await self.broadcast(0, data, "a header")
        message = decode(data.numpy().tobytes(), "trainer rank 0")
        if isinstance(message, Abort):
            raise TransportError(f"trainer rank 0 aborted the transfer: {message.reason}")
        if not isinstance(message, Bucket):
            return message, data
        payload = self._inbox(message.nbytes, message.sequence)
        if message.nbytes:
            await self.broadcast(1, payload, f"bucket {message.sequence}")
        return message, payload

    def _inbox(self, size: int, sequence: int) -> torch.Tensor:
        """One of two buffers in turn: one bucket is received while the one before is being copied out."""
        if self._inboxes[sequence % 2].numel() < size:
            self._inboxes[sequence % 2] = torch.empty(size, dtype=torch.uint8, device=self.payload_device)
        return self._inboxes[sequence % 2][:size]

    async def broadcast(self, group: int, tensor: torch.Tensor, what: str) -> None:
        """One broadcast from rank 0 over the control (0) or payload (1) group, awaited off the event loop."""
        if self._groups is None:
            raise TransportError("the weight group was closed during a transfer")
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        whom = "the rollout ranks" if self.rank == 0 else "trainer rank 0"
        with waiting_on(what, whom, self.deadline_s):
            try:
                work = self._groups[group].broadcast([tensor], options)
                await asyncio.to_thread(self._finish_work, work, tensor)
            except RuntimeError as error:
                text = str(error).splitlines()[0]
                if "timed out" in str(error).lower() or "timeout" in str(error).lower():
                    raise WaitTimeout(f"no answer to {what} from {whom} within {self.deadline_s} s ({text})") from error
                raise PeerLost(f"the weight group broke during {what}; one of {whom} has gone ({text})") from error

    def _finish_work(self, work: Any, tensor: torch.Tensor) -> None:
        work.wait(self._timeout)
        if tensor.device.type != "cpu":
            # A device collective's wait only orders the device's own streams; the bytes are read by others.
            current_platform().synchronize()


class _Outbox:
    """Two buffers: one is filled while the other one travels. Only the used part of a buffer is sent."""

    def __init__(self, engine: CollectiveCheckpointEngine, capacity: int) -> None:
        self.sequence = 0
        self._engine = engine
        self._capacity = capacity
        device = engine.payload_device
        self._kind = kind_for(device)
        self._buffers = [torch.empty(capacity, dtype=torch.uint8, device=device) for _ in range(2)]
        self._used = 0
        self._segments: list[Segment] = []
        self._travelling: asyncio.Task[None] | None = None

    async def put(self, name: str, tensor: torch.Tensor, fold: Fold) -> None:
        spec, data = spec_of(name, tensor), as_bytes(name, tensor)
        running, checksum, current = new_checksum(self._kind), 0, 0
        for bucket, offset, start, length in place(data.numel(), self._used, self._capacity):
            if bucket > current:
                await self.flush()
                current = bucket
            target = self._buffers[self.sequence % 2][offset : offset + length]
            target.copy_(data[start : start + length])
            checksum = running.update(target)
            self._segments.append(Segment(spec, start, offset, length, checksum))
            self._used = offset + length
        fold.add(spec, data.numel(), checksum)

    async def flush(self) -> None:
        """Let the bucket go once the one before has arrived; its own buffer is free two buckets later."""
        if not self._segments:
            return
        await self.settle()
        if self._buffers[0].device.type != "cpu":
            current_platform().synchronize()
        header = Bucket(self.sequence, 0, self._used, self._segments)
        payload = self._buffers[self.sequence % 2][: self._used]
        self._travelling = asyncio.create_task(self._send(header, payload))
        # Without this the task would not start before the next await, and nothing would overlap.
        await asyncio.sleep(0)
        self.sequence += 1
        self._used, self._segments = 0, []

    async def _send(self, header: Bucket, payload: torch.Tensor) -> None:
        await self._engine._send_header(header)
        if payload.numel():
            await self._engine.broadcast(1, payload, f"bucket {header.sequence}")

    async def settle(self) -> None:
        """Wait for the bucket under way."""
        task, self._travelling = self._travelling, None
        if task is not None:
            await task

    async def landed(self) -> bool:
        """After a failure: whether the bucket under way arrived, so that the group can still carry a word."""
        task, self._travelling = self._travelling, None
        outcome = await asyncio.gather(task, return_exceptions=True) if task is not None else [None]
        return outcome[0] is None


def _take(
    assembler: Assembler, message: Message, payload: torch.Tensor, expected: int
) -> list[tuple[str, torch.Tensor]]:
    if not isinstance(message, Bucket) or message.sequence != expected:
        raise TransportError("a bucket is missing", got=type(message).__name__, expected=f"bucket {expected}")
    return assembler.add(payload, message.segments)


def _check_commit(commit: Commit, assembler: Assembler, buckets: int, version: int | None) -> None:
    assembler.finish()
    fold = assembler.fold
    got = (buckets, len(fold.checksums), fold.nbytes, fold.manifest, fold.content)
    expected = (commit.buckets, commit.tensors, commit.nbytes, commit.manifest, commit.content)
    if got != expected:
        raise TransportError(
            "what arrived is not what was sent (buckets, tensors, bytes, manifest, content)", got=got, expected=expected
        )
    if version is not None and commit.version not in (-1, version):
        raise TransportError("trainer rank 0 sent another version", got=commit.version, expected=version)


def _gloo(store: dist.Store, rank: int, world_size: int, timeout: datetime.timedelta) -> Any:
    """A gloo group whose sockets listen on this host's own address: its name may resolve to a loopback one."""
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # torch's stub lacks it
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    where = {"interface": interface.split(",")[0]} if interface else {"hostname": _own_address()}
    options._devices = [dist.ProcessGroupGloo.create_device(**where)]
    options._timeout = timeout
    return dist.ProcessGroupGloo(store, rank, world_size, options)


def _own_address() -> str:
    """This host's address as other nodes reach it; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
