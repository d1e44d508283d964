# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Messages are typed and binary; a frame that is something else is an error and never code."""

import pickle

import pytest

from verl.errors import TransportError
from verl.transport.header import (
    Abort,
    Ack,
    ArenaHandle,
    Begin,
    Bucket,
    Commit,
    DeviceHandle,
    Done,
    Failed,
    Hello,
    Peer,
    Ready,
    Segment,
    TensorSpec,
    decode,
    encode,
)

DEVICE = DeviceHandle("hip", "0001:c5:00", b"\x00" * 64, 4096, 512, b"counter", 8, b"event", True)
PEER = Peer.me("weight sender", 3)


@pytest.mark.parametrize(
    "message",
    [
        Hello(PEER, 7, "cuda:1", "hip"),
        Begin(PEER, 7, ArenaHandle(4096, path="/proc/1/fd/3"), "xxh3"),
        Begin(PEER, 7, ArenaHandle(4096, device=DEVICE, probe=(1, 2), probe_offset=80), "xxh3"),
        Ready(),
        Ready("no"),
        Bucket(2, 64, 48, [Segment(TensorSpec("w", "bfloat16", (2, 3)), 0, 16, 12, (1 << 64) - 1)]),
        Ack(2),
        Commit(7, 3, 2, 100, 1, (1 << 64) - 1),
        Done(5),
        Abort("why"),
        Failed("ValueError", "what"),
    ],
)
def test_every_message_survives_the_wire(message: object) -> None:
    assert decode(encode(message)) == message


def test_a_pickle_is_refused_and_not_run() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (pytest.fail, ("a pickle was executed",))

    with pytest.raises(TransportError, match="the receiver sent something that is no transfer message"):
        decode(pickle.dumps(Bomb()), "the receiver")


@pytest.mark.parametrize("frame", [b"", b"\x00" * 8, encode(Ack(1))[:-1], b"\xff" * 100])
def test_garbage_is_a_transport_error(frame: bytes) -> None:
    with pytest.raises(TransportError):
        decode(frame)
