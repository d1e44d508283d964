# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Weights from one process to others of the same node, as a transaction: begin, buckets, commit or abort.

The sender fills two buffers in turn while the receivers copy the other one out. Every byte has a checksum, every
message a deadline, and an error on either side reaches the other. See `verl.transport.header` for the messages.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypedDict

import torch

from verl.errors import PeerLost, TransportError, VerlError
from verl.launch_info import LaunchInfo
from verl.transport import device_ipc
from verl.transport.arena import Arena, free_bytes
from verl.transport.checksum import Fold, kind_for, new_checksum
from verl.transport.header import (
    ANY_VERSION,
    PROTOCOL,
    Abort,
    Ack,
    ArenaHandle,
    Begin,
    Bucket,
    Commit,
    Done,
    Failed,
    Hello,
    Message,
    Peer,
    Ready,
    Segment,
    unexpected,
)
from verl.transport.layout import ALIGN_BYTES, Assembler, as_bytes, place, spec_of
from verl.transport.sockets import Hub, Spoke
from verl.transport.streams import Weights, as_async, chain, run_all

logger = logging.getLogger(__name__)

DEFAULT_DEADLINE_S = 120.0
MAX_SHM_BUFFER_BYTES = 64 << 20
"""Beyond this a larger buffer saves no time and leaves the cache; Docker's default /dev/shm is this large."""
MIN_BUFFER_BYTES = 64 << 10


class TensorMetadata(TypedDict):
    """Where a tensor lies in a bucket, as upstream's callbacks know it."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    offset: int


@dataclass(frozen=True)
class TransferStats:
    """One finished transfer; `bytes` counts tensor bytes once, without padding, `digest` is the content digest."""

    version: int
    bytes: int
    tensors: int
    buckets: int
    seconds: float
    digest: str
    medium: str = "shm"


@dataclass(frozen=True)
class StagedWeights:
    """A whole verified version in memory of its own; `checksums` are per tensor, in the order sent."""

    version: int
    tensors: dict[str, torch.Tensor]
    digest: str
    manifest: str
    nbytes: int
    checksums: dict[str, int] = field(repr=False, default_factory=dict)


def weight_socket_handle(info: LaunchInfo, replica_rank: int, local_rank: int) -> str:
    """The address on which the weights of one rollout worker travel.

    It follows from (job, replica, node-local rank) alone, so both sides derive it, whatever devices they see.
    """
    info.ensure_run_dir()
    return f"ipc://{info.socket_path(f'w-r{replica_rank}-l{local_rank}')}"


def text_of(digest: int) -> str:
    return f"{digest:016x}"


@dataclass
class _Receiver:
    """What the sender knows of one receiver."""

    hello: Hello
    ready: Ready | None = None
    acked: int = -1
    done: Done | None = None


class BucketedWeightSender:
    """Binds `zmq_handle`, waits for `num_receivers` receivers, sends every tensor to each of them.

    Parameters
    ----------
    bucket_size_mb : upper bound of both buffers together, in MiB.
    use_shm : shared memory even where device IPC would be tried.
    version : policy version of these weights; receivers that expect another are turned away.
    deadline_s : longest wait for any single message of a receiver.
    """

    def __init__(
        self,
        zmq_handle: str,
        bucket_size_mb: int = 512,
        use_shm: bool = False,
        *,
        version: int = 0,
        deadline_s: float = DEFAULT_DEADLINE_S,
        rank: int = 0,
        num_receivers: int = 1,
        bucket_bytes: int | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.zmq_handle = zmq_handle
        self.bound_bytes = bucket_bytes if bucket_bytes is not None else bucket_size_mb << 20
        self.use_shm = use_shm
        self.version = version
        self.deadline_s = deadline_s
        self.num_receivers = num_receivers
        self.device = device
        self.me = Peer.me("weight sender", rank)
        self._hub: Hub | None = None
        self._receivers: dict[bytes, _Receiver] = {}
        self._strays: list[str] = []
        self._arena: Arena | None = None
        self._device_buffer: torch.Tensor | None = None
        self._clear_bucket()
        self._sequence = 0

    async def async_send_weights(self, weights: Weights) -> TransferStats:
        """Send every (name, tensor) of `weights`; returns when each receiver has confirmed all of it.

        Raises
        ------
        TransportError
            a receiver failed (its error is in the message), or a tensor cannot be sent.
        PeerLost, WaitTimeout
            a receiver died, or was silent for `deadline_s`.
        """
        started = time.monotonic()
        try:
            self._init_socket()
            await self._meet()
            await self._init_buffer()
            fold = await self._stream(weights)
            await self._commit(fold)
        except BaseException as error:
            await self._abort(error)
            await self._cleanup(error)
            raise
        await self._cleanup()
        return TransferStats(
            version=self.version,
            bytes=fold.nbytes,
            tensors=len(fold.checksums),
            buckets=self._sequence,
            seconds=time.monotonic() - started,
            digest=text_of(fold.content),
            medium="shm" if self._device_buffer is None else "ipc",
        )

    def _init_socket(self) -> None:
        self._hub = Hub(self.zmq_handle)
        self._receivers, self._strays, self._sequence = {}, [], 0
        self._clear_bucket()

    async def _meet(self) -> None:
        """Wait for the receivers' introductions."""
        await self._pump("an introduction", lambda receiver: True)

    async def _init_buffer(self) -> None:
        """Agree with the receivers on device IPC where all of them read it right, else on shared memory."""
        problem = await self._offer_device() if self._wants_device() else None
        if self._device_buffer is not None:
            return
        if problem is not None:
            logger.warning("device IPC is not usable (%s); the weights go through shared memory", problem)
        self.capacity = _buffer_bytes(self.bound_bytes, MAX_SHM_BUFFER_BYTES, free_bytes() // 2)
        self._arena = Arena.create(2 * self.capacity)
        await self._offer(ArenaHandle(self._arena.nbytes, path=self._arena.path))
        problems = [receiver.ready.problem for receiver in self._receivers.values() if receiver.ready]
        if any(problems):
            raise TransportError("a receiver cannot map the shared memory", got=next(filter(None, problems)))

    def _wants_device(self) -> bool:
        here = socket.gethostname()
        return (
            not self.use_shm
            and self.device is not None
            and self.device.type != "cpu"
            and all(r.hello.ipc != "none" and r.hello.peer.host == here for r in self._receivers.values())
        )

    async def _offer_device(self) -> str | None:
        """Try device IPC with a pattern at a non-zero offset; returns why not, or None and keeps the buffer."""
        assert self.device is not None
        self.capacity = _buffer_bytes(self.bound_bytes, self.bound_bytes, self.bound_bytes)
        try:
            buffer = torch.empty(2 * self.capacity, dtype=torch.uint8, device=self.device)
            offset = self.capacity + 5 * ALIGN_BYTES
            pattern = device_ipc.probe_pattern(offset)
            buffer[offset : offset + len(pattern)].copy_(torch.tensor(pattern, dtype=torch.uint8))
            _synchronize(self.device)
            kind = next(iter(self._receivers.values())).hello.ipc
            handle = ArenaHandle(
                2 * self.capacity, device=device_ipc.export(buffer, kind), probe=pattern, probe_offset=offset
            )
        except (RuntimeError, VerlError) as error:
            return str(error)
        await self._offer(handle)
        problems = [receiver.ready.problem for receiver in self._receivers.values() if receiver.ready]
        problem = next(filter(None, problems), None)
        if problem is None:
            self._device_buffer = buffer
        return problem

    async def _offer(self, handle: ArenaHandle) -> None:
        for receiver in self._receivers.values():
            receiver.ready = None
        self._checksum = "xxh3" if handle.device is None else "sum64"
        await self._send_all(Begin(self.me, self.version, handle, self._checksum))
        await self._pump("its answer to begin", lambda receiver: receiver.ready is not None)

    async def _stream(self, weights: Weights) -> Fold:
        fold = Fold()
        async for name, tensor in as_async(weights):
            spec, data = spec_of(name, tensor), as_bytes(name, tensor)
            running, checksum, current = new_checksum(self._checksum), 0, 0
            for bucket, offset, start, length in place(data.numel(), self._used, self.capacity):
                if bucket > current:
                    await self._flush()
                    current = bucket
                piece, target = data[start : start + length], self._target(offset, length)
                # Hashed at the source where it can be, so that a byte damaged in the shared buffer is noticed.
                source = piece if self._checksum == "sum64" or piece.device.type == "cpu" else target
                target.copy_(piece)
                checksum = running.update(source)
                self._segments.append(Segment(spec, start, offset, length, checksum))
                self._used = offset + length
            fold.add(spec, data.numel(), checksum)
        if self._segments:
            await self._flush()
        return fold

    def _target(self, offset: int, length: int) -> torch.Tensor:
        base = self._base + offset
        if self._device_buffer is not None:
            return self._device_buffer[base : base + length]
        assert self._arena is not None
        self._arena.reserve(base + length)
        return self._arena.view(base, length)

    @property
    def _base(self) -> int:
        return (self._sequence % 2) * self.capacity

    async def _flush(self) -> None:
        """Send the bucket; returns once the other buffer is free to be filled."""
        if self._device_buffer is not None:
            _synchronize(self._device_buffer.device)
        await self._send_all(Bucket(self._sequence, self._base, self._used, self._segments))
        free = self._sequence - 1
        self._sequence += 1
        self._clear_bucket()
        await self._pump(f"its answer to bucket {free}", lambda receiver: receiver.acked >= free)

    def _clear_bucket(self) -> None:
        self._used, self._segments = 0, list[Segment]()

    async def _commit(self, fold: Fold) -> None:
        await self._send_all(
            Commit(self.version, self._sequence, len(fold.checksums), fold.nbytes, fold.manifest, fold.content)
        )
        await self._pump("its answer to commit", lambda receiver: receiver.done is not None)
        for receiver in self._receivers.values():
            if receiver.done is not None and receiver.done.content != fold.content:
                raise TransportError(
                    f"{receiver.hello.peer.describe()} holds other weights than were sent",
                    got=text_of(receiver.done.content),
                    expected=text_of(fold.content),
                )

    async def _send_all(self, message: Message) -> None:
        assert self._hub is not None
        for identity, receiver in self._receivers.items():
            await self._hub.send(identity, message, receiver.hello.peer.describe())

    async def _pump(self, what: str, satisfied: Callable[[_Receiver], bool]) -> None:
        """Receive until all receivers are there and `satisfied`; one deadline per message."""
        assert self._hub is not None
        while len(self._receivers) < self.num_receivers or not all(map(satisfied, self._receivers.values())):
            missing = [r.hello.peer for r in self._receivers.values() if not satisfied(r)]
            whom = ", ".join(peer.describe() for peer in missing) or self._unseen()
            watched = [receiver.hello.peer for receiver in self._receivers.values()]
            identity, message = await self._hub.receive(what, whom, self.deadline_s, watched)
            await self._handle(identity, message)

    def _unseen(self) -> str:
        strays = f" (turned away: {'; '.join(self._strays)})" if self._strays else ""
        return f"the weight receiver at {self.zmq_handle}{strays}"

    async def _handle(self, identity: bytes, message: Message) -> None:
        receiver = self._receivers.get(identity)
        if isinstance(message, Hello):
            await self._welcome(identity, message)
        elif receiver is None:
            return  # the last words of a receiver that was turned away
        elif isinstance(message, Failed):
            raise TransportError(f"{receiver.hello.peer.describe()} failed: {message.kind}: {message.message}")
        elif isinstance(message, Ready):
            receiver.ready = message
        elif isinstance(message, Ack):
            receiver.acked = message.sequence
        elif isinstance(message, Done):
            receiver.done = message
        else:
            raise unexpected(message, "an answer", receiver.hello.peer.describe())

    async def _welcome(self, identity: bytes, hello: Hello) -> None:
        reason = None
        if hello.protocol != PROTOCOL or hello.byteorder != self._mine.byteorder:
            reason = f"it speaks protocol {hello.protocol} {hello.byteorder}, this is {PROTOCOL} {self._mine.byteorder}"
        elif hello.version not in (ANY_VERSION, self.version):
            reason = f"it expects version {hello.version}, this is version {self.version}"
        elif len(self._receivers) >= self.num_receivers:
            reason = f"there are {self.num_receivers} receivers already"
        if reason is None:
            self._receivers[identity] = _Receiver(hello)
            return
        self._strays.append(f"{hello.peer.describe()}: {reason}")
        assert self._hub is not None
        try:
            await self._hub.send(identity, Abort(reason), hello.peer.describe())
        except PeerLost:
            logger.info("a receiver that was turned away has gone: %s", hello.peer.describe())

    @property
    def _mine(self) -> Hello:
        return Hello(self.me, self.version)

    async def _abort(self, error: BaseException) -> None:
        """Tell the receivers; whether they hear it does not matter to the caller's error."""
        if self._hub is None:
            return
        message = Abort(f"{type(error).__name__}: {error}")
        for identity, receiver in self._receivers.items():
            try:
                await self._hub.send(identity, message, receiver.hello.peer.describe())
            except PeerLost:
                logger.info("%s has gone before it could be told to abort", receiver.hello.peer.describe())

    async def _cleanup(self, first: BaseException | None = None) -> None:
        """Release socket, path and memory; never hides `first`."""
        hub, self._hub = self._hub, None
        later = first
        if hub is not None:
            try:
                await hub.close()
            except Exception as error:
                later = chain(later, error)
        arena, self._arena = self._arena, None
        run_all([arena.close] if arena is not None else [], later)
        if first is None and later is not None:
            raise later


class BucketedWeightReceiver:
    """Connects to `zmq_handle` and receives one version; synchronous, for threads and plain workers.

    Parameters
    ----------
    device : where the tensors are wanted.
    version : the version to accept; None takes any.
    stopped : asked five times a second; a reason ends the transfer.
    """

    def __init__(
        self,
        zmq_handle: str,
        device: torch.device,
        use_shm: bool = False,
        deadline_s: float = DEFAULT_DEADLINE_S,
        *,
        version: int | None = None,
        rank: int = 0,
        ipc: str = "none",
        stopped: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.zmq_handle = zmq_handle
        self.device = torch.device(device)
        self.deadline_s = deadline_s
        self.version = version
        self.me = Peer.me("weight receiver", rank)
        self.stats: TransferStats | None = None
        self._ipc = "none" if use_shm else ipc
        self._stopped = stopped
        self._spoke: Spoke | None = None
        self._sender: Peer | None = None
        self._arena: Arena | None = None
        self._mapped: torch.Tensor | None = None
        self._told = False

    def receive_weights(
        self, on_bucket_received: Callable[[list[tuple[str, torch.Tensor]]], object] | None = None
    ) -> TransferStats:
        """Receive everything, handing each bucket's complete tensors to the callback; they own their memory."""
        for tensors in self.buckets():
            if on_bucket_received is not None:
                on_bucket_received(tensors)
        assert self.stats is not None
        return self.stats

    def stage(self) -> StagedWeights:
        """Receive and verify everything into memory of its own, touching no model."""
        staged: dict[str, torch.Tensor] = {}
        for tensors in self.buckets():
            staged.update(tensors)
        assert self.stats is not None
        fold = self._assembler.fold
        return StagedWeights(
            self.stats.version, staged, self.stats.digest, text_of(fold.manifest), fold.nbytes, self.checksums
        )

    @property
    def checksums(self) -> dict[str, int]:
        """Checksum of each tensor that has arrived so far, in the order sent."""
        return dict(self._assembler.fold.checksums)

    def buckets(self) -> Iterator[list[tuple[str, torch.Tensor]]]:
        """The tensors completed by each bucket; the sender learns that all is well only after the last was taken."""
        self._started = time.monotonic()
        try:
            self._init_socket()
            self._init_buffer()
            expected = 0
            while True:
                message = self._receive("a bucket or commit")
                if isinstance(message, Commit):
                    self._finish(message, expected)
                    break
                if not isinstance(message, Bucket) or message.sequence != expected:
                    raise unexpected(message, f"bucket {expected}", self._whom())
                tensors = self._assembler.add(self._copy_out(message), message.segments)
                self._send(Ack(message.sequence))
                expected += 1
                yield [(name, tensor.to(self.device)) for name, tensor in tensors]
        except BaseException as error:
            self._report(error)
            self._cleanup(error)
            raise
        self._cleanup()

    def _init_socket(self) -> None:
        self._spoke = Spoke(self.zmq_handle, self._stopped)
        version = ANY_VERSION if self.version is None else self.version
        self._send(Hello(self.me, version, str(self.device), self._ipc))

    def _init_buffer(self) -> None:
        """Map what the sender offers; a device offer that fails its probe is answered, and another one follows."""
        while True:
            begin = self._receive("begin")
            if not isinstance(begin, Begin):
                raise unexpected(begin, "begin", self._whom())
            self._sender = begin.peer
            if self.version not in (None, begin.version):
                raise TransportError("the sender began another version", got=begin.version, expected=self.version)
            self.version = begin.version
            problem = self._map(begin.arena)
            self._send(Ready(problem))
            if problem is None:
                device = self._mapped.device if self._mapped is not None else torch.device("cpu")
                self._assembler = Assembler(begin.checksum, device)
                if begin.checksum == "xxh3" and kind_for(device) != "xxh3":
                    raise TransportError("a device arena needs a device checksum", got=begin.checksum)
                return

    def _map(self, handle: ArenaHandle) -> str | None:
        if handle.device is None:
            if handle.path is None:
                raise TransportError("the sender offered neither shared nor device memory")
            self._arena = Arena.attach(handle.path, handle.nbytes)
            return None
        try:
            mapped = device_ipc.rebuild_ipc(handle.device, handle.nbytes)
            problem = device_ipc.probe(mapped, handle.probe_offset, handle.probe)
        except (RuntimeError, AssertionError, VerlError) as error:
            # Not an error of the transfer: the sender is told, and offers shared memory instead.
            return f"{type(error).__name__}: {error}"
        self._mapped = mapped if problem is None else None
        return problem

    def _copy_out(self, bucket: Bucket) -> torch.Tensor:
        """The bucket's bytes in memory that is never reused: what the engine keeps stays as it was sent."""
        if self._mapped is not None:
            return self._mapped[bucket.base : bucket.base + bucket.nbytes].clone()
        assert self._arena is not None
        return self._arena.view(bucket.base, bucket.nbytes).clone()

    def _finish(self, commit: Commit, buckets: int) -> None:
        self._assembler.finish()
        fold = self._assembler.fold
        got = (self.version, buckets, len(fold.checksums), fold.nbytes, fold.manifest, fold.content)
        expected = (
            commit.version,
            commit.buckets,
            commit.tensors,
            commit.nbytes,
            commit.manifest,
            commit.content,
        )
        if got != expected:
            raise TransportError(
                "what arrived is not what was committed (version, buckets, tensors, bytes, manifest, content)",
                got=got,
                expected=expected,
            )
        self.stats = TransferStats(
            version=commit.version,
            bytes=fold.nbytes,
            tensors=len(fold.checksums),
            buckets=buckets,
            seconds=time.monotonic() - self._started,
            digest=text_of(fold.content),
            medium="shm" if self._mapped is None else "ipc",
        )
        self._send(Done(fold.content))

    def _receive(self, what: str) -> Message:
        assert self._spoke is not None
        message = self._spoke.receive(what, self._whom(), self.deadline_s, [self._sender] if self._sender else [])
        if isinstance(message, Abort):
            self._told = True
            raise TransportError(f"{self._whom()} aborted the transfer: {message.reason}")
        return message

    def _send(self, message: Message) -> None:
        assert self._spoke is not None
        self._spoke.send(message)

    def _whom(self) -> str:
        return self._sender.describe() if self._sender else f"the weight sender at {self.zmq_handle}"

    def _report(self, error: BaseException) -> None:
        """The sender raises this receiver's error as its own, unless it was the sender who ended the transfer."""
        if self._spoke is None or self._told or isinstance(error, PeerLost):
            return
        try:
            self._send(Failed(type(error).__name__, str(error)))
        except PeerLost:
            logger.info("%s has gone before it could be told of %s", self._whom(), type(error).__name__)

    def _cleanup(self, first: BaseException | None = None) -> None:
        """Release socket and mapping; never hides `first`."""
        steps: list[Callable[[], object]] = []
        spoke, self._spoke = self._spoke, None
        arena, self._arena = self._arena, None
        if spoke is not None:
            steps.append(spoke.close)
        if arena is not None:
            steps.append(arena.close)
        if self._mapped is not None:
            device, self._mapped = self._mapped.device, None
            steps.append(lambda: _collect_ipc(device))
        run_all(steps, first)


class ReceiverThread:
    """Stages one version on a thread, so that the engine beside it goes on generating."""

    def __init__(self, make_receiver: Callable[[Callable[[], str | None]], BucketedWeightReceiver], name: str) -> None:
        self._reason: str | None = None
        self._receiver = make_receiver(lambda: self._reason)
        self._staged: StagedWeights | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._staged = self._receiver.stage()
        except BaseException as error:
            # Kept, and raised in whoever asks for the result: a thread has nobody above it.
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        return self._error

    @property
    def staged_version(self) -> int | None:
        return self._staged.version if self._staged is not None else None

    def result(self, deadline_s: float) -> StagedWeights:
        """What was staged; waits at most `deadline_s` for the thread."""
        self._thread.join(deadline_s)
        if self._thread.is_alive():
            raise TransportError("the weights have not arrived completely", where=self._receiver.zmq_handle)
        if self._error is not None:
            raise self._error
        assert self._staged is not None
        return self._staged

    def stop(self, reason: str, deadline_s: float = 5.0) -> None:
        """End the transfer and drop what was staged."""
        self._reason = reason
        self._thread.join(deadline_s)
        if self._thread.is_alive():
            raise TransportError("the receiving thread does not stop", where=self._receiver.zmq_handle, got=reason)
        self._staged = None


def _buffer_bytes(bound: int, ceiling: int, free: int) -> int:
    """Bytes of one of the two buffers: half the bound, at most `ceiling`, and no more than is `free` for it."""
    fitting = max(MIN_BUFFER_BYTES, min(bound // 2, ceiling, free))
    return fitting // ALIGN_BYTES * ALIGN_BYTES


def _synchronize(device: torch.device) -> None:
    torch.get_device_module(device.type).synchronize(device)


def _collect_ipc(device: torch.device) -> None:
    """Release mapped peer memory, where the platform has such a thing."""
    module = torch.get_device_module(device.type)
    if hasattr(module, "ipc_collect"):
        module.synchronize(device)
        module.ipc_collect()
