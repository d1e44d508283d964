# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The receiving side of a weight transfer, for threads and plain workers; and a thread that stages a whole version."""

import logging
import threading
import time
from collections.abc import Callable, Generator

import torch

from verl.errors import PeerLost, TransportError, VerlError
from verl.transport import device_ipc
from verl.transport.arena import Arena
from verl.transport.checksum import kind_for
from verl.transport.header import (
    ANY_VERSION,
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
    unexpected,
)
from verl.transport.layout import Assembler
from verl.transport.sockets import Spoke
from verl.transport.stats import DEFAULT_DEADLINE_S, StagedWeights, TransferStats, text_of
from verl.transport.streams import run_all

logger = logging.getLogger(__name__)


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
        stream = self.buckets()
        for tensors in stream:
            try:
                if on_bucket_received is not None:
                    on_bucket_received(tensors)
            except BaseException as error:
                # Into the generator, so that the sender hears this reason; it comes out again.
                stream.throw(error)
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

    def buckets(self) -> Generator[list[tuple[str, torch.Tensor]], None, None]:
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
                tensors = self._assembler.add(self._view(message), message.segments)
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

    def _view(self, bucket: Bucket) -> torch.Tensor:
        """The bucket where the sender filled it; it is filled again after the answer."""
        if self._mapped is not None:
            return self._mapped[bucket.base : bucket.base + bucket.nbytes]
        assert self._arena is not None
        return self._arena.view(bucket.base, bucket.nbytes)

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
            text = "abandoned in the middle" if isinstance(error, GeneratorExit) else str(error)
            self._send(Failed(type(error).__name__, text))
        except PeerLost:
            logger.info("%s has gone before it could be told of %s", self._whom(), type(error).__name__)

    def _cleanup(self, first: BaseException | None = None) -> None:
        """Release socket and mapping; never hides `first`."""
        steps: list[Callable[[], object]] = []
        spoke, self._spoke = self._spoke, None
        arena, self._arena = self._arena, None
        if spoke is not None:
            steps.append(lambda: spoke.close(last_words=self._sender is not None))
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


def _collect_ipc(device: torch.device) -> None:
    """Release mapped peer memory, where the platform has such a thing."""
    module = torch.get_device_module(device.type)
    if hasattr(module, "ipc_collect"):
        module.synchronize(device)
        module.ipc_collect()
