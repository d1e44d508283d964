# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The processes that run a reward function, so that a call which hangs can be killed from outside.

    reward worker ──socket pair──► template (loads the function once) ──fork──► scorer, scorer, …
          └────────────────socket pair, one a scorer────────────────────────────────┘

A scorer of a plain function takes one call at a time; a scorer of a coroutine function takes many. This module
imports nothing heavy, because each scorer is a fork of the process that imports it.

Arguments go down as pickles, because a row may hold any object (images, arrays), over socket pairs that have no
address: only the parent, which started this process and could run anything in it, holds the other end. What comes
back from a scorer, where somebody else's function ran, is msgpack and never unpickled.
"""

import asyncio
import contextvars
import ctypes
import inspect
import math
import mmap
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import cloudpickle
import msgspec

from verl.experimental.reward_loop.outcome import split_result
from verl.utils.import_utils import load_extern_object

_LENGTH = struct.Struct("!I")
_CALL_ID = struct.Struct("!q")
_PID = struct.Struct("!i")
# What stands before the pickled arguments of a call: its id, and its timeout in seconds (NaN: none).
CALL = struct.Struct("!qd")
FORK = b"F"
NOBODY = -1
_PR_SET_PDEATHSIG = 1

Score = Callable[..., Any]


def frame(payload: bytes) -> bytes:
    """Length and payload, as both sides send them."""
    return _LENGTH.pack(len(payload)) + payload


def read_frame(stream: Any) -> bytes | None:
    """The next payload of a blocking stream, or None at its end."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    return stream.read(*_LENGTH.unpack(header))


def load_function(spec: dict[str, Any]) -> Score:
    """The function of a spec: `path` and `name` of a file or `pkg://module`, or `pickled` by value.

    `batched`: it takes lists (arguments in the plural) and returns one.
    """
    if "pickled" in spec:
        function = cloudpickle.loads(spec["pickled"])
    else:
        function = load_extern_object(spec["path"], spec["name"])
    return _one_of_a_batch(function) if spec.get("batched") else function


def _one_of_a_batch(function: Score) -> Score:
    def score(*, data_source: Any, solution_str: Any, ground_truth: Any, extra_info: Any, **kwargs: Any) -> Any:
        columns = {
            "data_sources": [data_source],
            "solution_strs": [solution_str],
            "ground_truths": [ground_truth],
            "extra_infos": [extra_info],
        }
        (result,) = function(**columns, **kwargs)
        return result

    return score


def is_async(function: Score) -> bool:
    """Whether calling it gives an awaitable: a coroutine function, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def main(descriptor: int) -> None:
    """Body of the template: load the function, say so, then fork a scorer for each request."""
    die_with_parent()
    control = socket.socket(fileno=descriptor)
    try:
        with control.makefile("rb", buffering=0) as stream:
            spec = pickle.loads(read_frame(stream) or b"")
        sys.path[:0] = [path for path in spec.get("sys_path", ()) if path not in sys.path]
        function = load_function(spec)
        kwargs = dict(spec.get("kwargs") or {})
        hello = {"is_async": is_async(function)}
    except BaseException:
        control.sendall(frame(msgspec.msgpack.encode({"error": traceback.format_exc(limit=8)})))
        return
    control.sendall(frame(msgspec.msgpack.encode(hello)))
    # Scorers that end are reaped by the kernel.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, len(FORK), 2)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _score_forever(function, kwargs, *descriptors)
        for received in descriptors:
            os.close(received)
        control.sendall(_PID.pack(pid))


def die_with_parent() -> None:
    """Let the kernel kill this process when the one that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _score_forever(function: Score, kwargs: dict[str, Any], descriptor: int, marker: int) -> None:
    status = 1
    try:
        # A group of its own: what the function starts is killed with it.
        os.setsid()
        die_with_parent()
        # The function may start processes and wait for them.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        channel = socket.socket(fileno=descriptor)
        if is_async(function):
            with mmap.mmap(marker, _CALL_ID.size) as memory:
                asyncio.run(_serve_many(function, kwargs, channel, memory))
        else:
            _serve_one_by_one(function, kwargs, channel)
        status = 0
    finally:
        # Never back into the template's stack, whatever the function left behind.
        os._exit(status)


def _serve_one_by_one(function: Score, kwargs: dict[str, Any], channel: socket.socket) -> None:
    with channel.makefile("rb") as stream:
        while (request := read_frame(stream)) is not None:
            call_id, _ = CALL.unpack_from(request)
            try:
                result = function(**pickle.loads(request[CALL.size :]), **kwargs)
                if inspect.isawaitable(result):
                    result = asyncio.run(_awaited(result))
                answer = _answer(call_id, result)
            except Exception as error:
                answer = _failure(call_id, error)
            channel.sendall(frame(answer))


async def _awaited(result: Any) -> Any:
    return await result


_current_call: contextvars.ContextVar[int] = contextvars.ContextVar("current_call", default=NOBODY)


class _Marked(Coroutine[Any, Any, Any]):
    """A coroutine that writes its call id to shared memory while it runs, so that whoever blocks the loop is known."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], call_id: int, memory: mmap.mmap) -> None:
        self._coroutine = coroutine
        self._call_id = call_id
        self._memory = memory

    def _step(self, advance: Callable[..., Any], *args: Any) -> Any:
        _CALL_ID.pack_into(self._memory, 0, self._call_id)
        try:
            return advance(*args)
        finally:
            _CALL_ID.pack_into(self._memory, 0, NOBODY)

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *args: Any) -> Any:
        return self._step(self._coroutine.throw, *args)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()


async def _serve_many(function: Score, kwargs: dict[str, Any], channel: socket.socket, memory: mmap.mmap) -> None:
    loop = asyncio.get_running_loop()

    def marked_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        call_id = _current_call.get()
        return asyncio.Task(
            coroutine if call_id == NOBODY else _Marked(coroutine, call_id, memory), loop=loop, **options
        )

    loop.set_task_factory(marked_task)
    reader, writer = await asyncio.open_connection(sock=channel)

    async def serve(call_id: int, timeout_s: float, arguments: bytes) -> None:
        try:
            async with asyncio.timeout(None if math.isnan(timeout_s) else timeout_s) as scope:
                answer = _answer(call_id, await function(**pickle.loads(arguments), **kwargs))
        except Exception as error:
            # A TimeoutError of the function's own (an HTTP client, say) is an error like any other.
            answer = _failure(call_id, error, timed_out=scope.expired())
        writer.write(frame(answer))

    running: set[asyncio.Task[None]] = set()
    while True:
        try:
            header = await reader.readexactly(_LENGTH.size)
        except asyncio.IncompleteReadError:
            return
        request = await reader.readexactly(*_LENGTH.unpack(header))
        call_id, timeout_s = CALL.unpack_from(request)
        token = _current_call.set(call_id)
        task = loop.create_task(serve(call_id, timeout_s, request[CALL.size :]))
        _current_call.reset(token)
        running.add(task)
        task.add_done_callback(running.discard)


def _answer(call_id: int, result: Any) -> bytes:
    score, extras = split_result(result)
    return msgspec.msgpack.encode([call_id, "ok", score, extras])


def _failure(call_id: int, error: BaseException, timed_out: bool = False) -> bytes:
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" ({where[0].filename}:{where[0].lineno})" if where else ""
    kind = "timeout" if timed_out else "error"
    return msgspec.msgpack.encode([call_id, kind, f"{type(error).__name__}: {error}{place}", None])


if __name__ == "__main__":
    main(int(sys.argv[1]))
