# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""ZMQ sockets on this node, with deadlines: the side that sends weights binds, those that receive connect.

The binding side is a ROUTER and speaks only to peers that introduced themselves, so a receiver left over from an
earlier attempt, which ZMQ reconnects by itself, can never answer in place of the right one.
"""

import asyncio
import errno
import logging
import os
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import zmq
import zmq.asyncio

from verl.errors import PeerLost, TransportError
from verl.launch_info import MAX_SOCKET_PATH_BYTES
from verl.transport.header import Message, Peer, decode, encode
from verl.waits import expired, waiting_on

logger = logging.getLogger(__name__)

_TICK_S = 0.2
"""How often a wait looks whether its peer still lives; short against any deadline, long against a poll."""


def path_of(handle: str) -> Path:
    """The socket file behind an `ipc://` handle."""
    if not handle.startswith("ipc://"):
        raise TransportError("weights travel over ipc:// sockets", got=handle, expected="ipc://<path>")
    path = Path(handle.removeprefix("ipc://"))
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise TransportError(
            "the socket path is too long",
            where=str(path),
            got=f"{len(os.fsencode(path))} bytes",
            expected=f"at most {MAX_SOCKET_PATH_BYTES}",
            remedy="set VERL_RUN_DIR to a shorter directory",
        )
    return path


def remove_stale(path: Path) -> None:
    """Remove a socket that nobody listens on; a file that is no socket, or a live socket, is an error."""
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(facts.st_mode):
        raise TransportError(
            "a file that is not a socket is in the way",
            where=str(path),
            remedy="move it away; it is not ours, so it was left alone",
        )
    if not _is_private(path):
        raise TransportError(
            "a left-over socket outside a private directory of ours is in the way",
            where=str(path),
            remedy="remove it by hand; sockets belong under VERL_RUN_DIR",
        )
    if _is_listening(path):
        raise TransportError(
            "another live process listens here",
            where=str(path),
            remedy="two senders have the same job, replica and local rank; check VERL_JOB_ID and VERL_REPLICA_RANK",
        )
    unlink_quietly(path)


def unlink_quietly(path: Path) -> None:
    """Remove a socket of ours; that it has gone already, or cannot be removed, is logged and no more."""
    try:
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("could not remove the socket %s: %s", path, error)


def _is_private(path: Path) -> bool:
    """Whether the socket and its directory are this user's, and nobody else may enter."""
    directory = path.parent.stat()
    return path.lstat().st_uid == directory.st_uid == os.getuid() and not directory.st_mode & 0o077


def _is_listening(path: Path) -> bool:
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.settimeout(1.0)
        probe.connect(os.fspath(path))
        return True
    except OSError as error:
        # A full backlog or a slow accept still means that somebody holds it.
        return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    finally:
        probe.close()


def is_alive(peer: Peer) -> bool:
    """Whether a peer on this node still runs; a peer elsewhere is given the benefit of the doubt."""
    if peer.host != socket.gethostname():
        return True
    try:
        return psutil.Process(peer.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


_LAST_WORDS_MS = 1000


class Hub:
    """The binding side, for coroutines: one ROUTER that talks to `Hello`-ed peers by their identity."""

    def __init__(self, handle: str) -> None:
        self.handle = handle
        self._path = path_of(handle)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_stale(self._path)
        # A context of its own: terminating it is the only way to know that ZMQ has let go of the path,
        # which it unlinks from its own thread, and must not do under the next sender.
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        try:
            self._socket.bind(handle)
            self._path.chmod(0o600)
        except (zmq.ZMQError, OSError) as error:
            self._context.destroy(linger=0)
            raise TransportError(f"cannot bind ({error})", where=handle) from error

    async def send(self, identity: bytes, message: Message, whom: str) -> None:
        try:
            await self._socket.send_multipart([identity, encode(message)])
        except zmq.ZMQError as error:
            raise PeerLost(f"{whom} hung up before {type(message).__name__} ({error})", where=self.handle) from error

    async def receive(self, what: str, whom: str, deadline_s: float, peers: list[Peer]) -> tuple[bytes, Message]:
        """The next message of any peer; `peers` are watched while it is awaited."""
        deadline = time.monotonic() + deadline_s
        with waiting_on(what, whom, deadline_s):
            while not await self._socket.poll(_tick_ms(deadline)):
                _check(deadline, deadline_s, what, whom, peers)
        identity, *frames = await self._socket.recv_multipart(zmq.NOBLOCK)
        if len(frames) != 1:
            raise TransportError("a message has one frame", where=self.handle, got=len(frames), expected=1)
        return identity, decode(frames[0], whom)

    async def close(self) -> None:
        """Let go of socket and path; the path is free when this returns."""
        # For last words; those to a peer that has gone are dropped and do not hold the close.
        self._socket.close(linger=_LAST_WORDS_MS)
        await asyncio.to_thread(self._context.term)
        unlink_quietly(self._path)


class Spoke:
    """The connecting side, for threads: every wait polls, so `stop` and deadlines are honoured within 0.2 s."""

    def __init__(self, handle: str, stopped: Callable[[], str | None] = lambda: None) -> None:
        self.handle = handle
        path_of(handle)
        self._stopped = stopped
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        self._socket.connect(handle)

    def send(self, message: Message) -> None:
        try:
            self._socket.send(encode(message), zmq.NOBLOCK)
        except zmq.Again as error:
            raise PeerLost(f"the peer does not take {type(message).__name__}", where=self.handle) from error

    def receive(self, what: str, whom: str, deadline_s: float, peers: list[Peer]) -> Message:
        deadline = time.monotonic() + deadline_s
        with waiting_on(what, whom, deadline_s):
            while not self._socket.poll(_tick_ms(deadline)):
                reason = self._stopped()
                if reason is not None:
                    raise TransportError(f"the transfer was stopped here: {reason}", where=self.handle)
                _check(deadline, deadline_s, what, whom, peers)
        return decode(self._socket.recv(zmq.NOBLOCK), whom)

    def close(self, last_words: bool = False) -> None:
        """Let go; with `last_words`, after what was sent has left, which needs a peer that is there."""
        self._socket.close(linger=_LAST_WORDS_MS if last_words else 0)
        self._context.term()


def _tick_ms(deadline: float) -> int:
    return max(1, int(1000 * min(_TICK_S, deadline - time.monotonic())))


def _check(deadline: float, deadline_s: float, what: str, whom: str, peers: list[Peer]) -> None:
    for peer in peers:
        if not is_alive(peer):
            raise PeerLost(f"{peer.describe()} died while {what} was awaited from it")
    if time.monotonic() >= deadline:
        raise expired(what, whom, deadline_s)
