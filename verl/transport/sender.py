# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The sending side of a weight transfer: fills two buffers in turn while the receivers copy the other one out."""

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from verl.errors import PeerLost, TransportError, VerlError, WaitTimeout
from verl.platform import current_platform
from verl.transport import device_ipc
from verl.transport.arena import Arena, free_bytes
from verl.transport.checksum import CorruptBytes, Fold, new_checksum
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
from verl.transport.layout import ALIGN_BYTES, as_bytes, place, spec_of
from verl.transport.sockets import Hub
from verl.transport.stats import DEFAULT_DEADLINE_S, TransferStats, text_of
from verl.transport.streams import Weights, as_async, chain, run_all
from verl.waits import expired

logger = logging.getLogger(__name__)

MAX_SHM_BUFFER_BYTES = 64 << 20
"""Beyond this a larger buffer saves no time and leaves the cache; Docker's default /dev/shm is this large."""
MIN_BUFFER_BYTES = 64 << 10
_LAST_WORDS_S = 0.5


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
        self._used = 0
        self._segments: list[Segment] = []
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
            with current_platform().exportable_memory():
                buffer = torch.empty(2 * self.capacity, dtype=torch.uint8, device=self.device)
            offset = self.capacity + 5 * ALIGN_BYTES
            pattern = device_ipc.probe_pattern(offset)
            buffer[offset : offset + len(pattern)].copy_(torch.tensor(pattern, dtype=torch.uint8))
            _synchronize(self.device)
            kind = next(iter(self._receivers.values())).hello.ipc
            handle = ArenaHandle(
                2 * self.capacity, device=device_ipc.export(buffer, kind), probe=pattern, probe_offset=offset
            )
        except (RuntimeError, AssertionError, VerlError) as error:
            # torch asserts where it was built without the device.
            return f"{type(error).__name__}: {error}"
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
        self._used = 0
        self._segments = []

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
            try:
                await self._hub.send(identity, message, receiver.hello.peer.describe())
            except PeerLost:
                await self._last_words()
                raise

    async def _last_words(self) -> None:
        """A receiver that fails says why and hangs up: its reason may lie unread when a send to it fails."""
        assert self._hub is not None
        try:
            while True:
                await self._handle(*await self._hub.receive("last words", "the receivers", _LAST_WORDS_S, []))
        except WaitTimeout:
            return

    async def _pump(self, what: str, satisfied: Callable[[_Receiver], bool]) -> None:
        """Receive until all receivers are there and `satisfied`; the deadline starts anew with each of their messages.

        A stray that is turned away does not prolong the wait.
        """
        assert self._hub is not None
        end = time.monotonic() + self.deadline_s
        while len(self._receivers) < self.num_receivers or not all(map(satisfied, self._receivers.values())):
            missing = [r.hello.peer for r in self._receivers.values() if not satisfied(r)]
            whom = ", ".join(peer.describe() for peer in missing) or self._unseen()
            watched = [receiver.hello.peer for receiver in self._receivers.values()]
            left_s = max(0.0, end - time.monotonic())
            try:
                identity, message = await self._hub.receive(what, whom, left_s, watched)
            except WaitTimeout as error:
                raise expired(what, whom, self.deadline_s) from error
            await self._handle(identity, message)
            if identity in self._receivers:
                end = time.monotonic() + self.deadline_s

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
            error = CorruptBytes if message.kind == CorruptBytes.__name__ else TransportError
            raise error(f"{receiver.hello.peer.describe()} failed: {message.kind}: {message.message}")
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


def _buffer_bytes(bound: int, ceiling: int, free: int) -> int:
    """Bytes of one of the two buffers: half the bound, at most `ceiling`, and no more than is `free` for it."""
    fitting = max(MIN_BUFFER_BYTES, min(bound // 2, ceiling, free))
    return fitting // ALIGN_BYTES * ALIGN_BYTES


def _synchronize(device: torch.device) -> None:
    torch.get_device_module(device.type).synchronize(device)
