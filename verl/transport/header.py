# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The messages of one weight transfer: typed, binary, and never unpickled.

    receiver                      sender
    Hello  ─────────────────────▶
           ◀─────────────────────  Begin     version, arena
    Ready  ─────────────────────▶            (mapped, or why not)
           ◀─────────────────────  Bucket    sequence, segments with checksums       ┐ repeated
    Ack    ─────────────────────▶                                                    ┘
           ◀─────────────────────  Commit    counts, manifest digest, content digest
    Done   ─────────────────────▶

Either side may end the transfer at any point: the sender with `Abort`, the receiver with `Failed`.
"""

import os
import socket
import sys
from typing import Any

import msgspec

from verl.errors import TransportError

PROTOCOL = 1
ANY_VERSION = -1
"""What a receiver says that takes whatever version the sender has."""


class TensorSpec(msgspec.Struct, array_like=True, frozen=True):
    """Name, dtype (torch's name without `torch.`) and shape of one tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Segment(msgspec.Struct, array_like=True, frozen=True):
    """A run of bytes of one tensor inside a bucket.

    `checksum` is the running checksum of the tensor's bytes up to the end of this segment,
    so the checksum of its last segment is the checksum of the tensor.
    """

    spec: TensorSpec
    tensor_offset: int
    offset: int
    nbytes: int
    checksum: int

    @property
    def where(self) -> str:
        return f"{self.spec.name}[{self.tensor_offset}:{self.tensor_offset + self.nbytes}]"


class Peer(msgspec.Struct, array_like=True, frozen=True):
    """Who speaks: enough to find the process, and to notice that it has died."""

    role: str
    rank: int
    pid: int
    host: str

    @classmethod
    def me(cls, role: str, rank: int) -> "Peer":
        return cls(role, rank, os.getpid(), socket.gethostname())

    def describe(self) -> str:
        return f"{self.role} rank {self.rank} (pid {self.pid} on {self.host})"


class Hello(msgspec.Struct, array_like=True, tag="hello", frozen=True):
    """A receiver introduces itself; `device` is where it wants the bytes, `ipc` what it can map there."""

    peer: Peer
    version: int
    device: str = "cpu"
    ipc: str = "none"
    protocol: int = PROTOCOL
    byteorder: str = sys.byteorder


class DeviceHandle(msgspec.Struct, array_like=True, frozen=True):
    """An exported device allocation; `pci` names the physical device, because ordinals differ between processes."""

    kind: str
    pci: str
    handle: bytes
    storage_bytes: int
    storage_offset: int
    ref_counter_handle: bytes
    ref_counter_offset: int
    event_handle: bytes
    event_sync_required: bool


class ArenaHandle(msgspec.Struct, array_like=True, frozen=True):
    """Where the buckets lie: a file of the sender's (`path`) or device memory (`device`)."""

    nbytes: int
    path: str | None = None
    device: DeviceHandle | None = None
    probe: tuple[int, ...] = ()
    """Bytes that the sender wrote at `probe_offset`; a receiver that reads others has not mapped the same memory."""
    probe_offset: int = 0


class Begin(msgspec.Struct, array_like=True, tag="begin", frozen=True):
    """The sender opens the transaction; `checksum` names the algorithm ("xxh3" on the host, "sum64" on a device)."""

    peer: Peer
    version: int
    arena: ArenaHandle
    checksum: str


class Ready(msgspec.Struct, array_like=True, tag="ready", frozen=True):
    """The arena is mapped, or `problem` says why it could not be."""

    problem: str | None = None


class Bucket(msgspec.Struct, array_like=True, tag="bucket", frozen=True):
    """One filled buffer, `base` bytes into the arena."""

    sequence: int
    base: int
    nbytes: int
    segments: list[Segment]


class Ack(msgspec.Struct, array_like=True, tag="ack", frozen=True):
    """The bucket has been copied out; its buffer may be filled again."""

    sequence: int


class Commit(msgspec.Struct, array_like=True, tag="commit", frozen=True):
    """All has been sent; the receiver compares before it answers `Done`."""

    version: int
    buckets: int
    tensors: int
    nbytes: int
    manifest: int
    content: int


class Done(msgspec.Struct, array_like=True, tag="done", frozen=True):
    """Everything arrived as it was sent."""

    content: int


class Abort(msgspec.Struct, array_like=True, tag="abort", frozen=True):
    """The sender gives up; nothing of this version may be used."""

    reason: str


class Failed(msgspec.Struct, array_like=True, tag="failed", frozen=True):
    """The receiver gives up; `kind` and `message` are its exception's."""

    kind: str
    message: str


Message = Hello | Begin | Ready | Bucket | Ack | Commit | Done | Abort | Failed

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(frame: bytes, whom: str = "the peer") -> Message:
    """The message in `frame`; anything else is a `TransportError`, never code that runs."""
    try:
        return _decoder.decode(frame)
    except msgspec.MsgspecError as error:
        raise TransportError(f"{whom} sent something that is no transfer message ({error})") from error


def unexpected(message: Any, expected: str, whom: str) -> TransportError:
    return TransportError(f"{whom} sent a message out of turn", got=type(message).__name__, expected=expected)
