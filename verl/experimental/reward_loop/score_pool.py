# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Runs a reward function in processes that can be killed: a deadline holds for regex, SymPy and C loops alike."""

import asyncio
import contextlib
import itertools
import math
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import cloudpickle
import msgspec

from verl.errors import ConfigError, PeerLost, RewardError
from verl.experimental.reward_loop.score_process import CALL, FORK, NOBODY, frame
from verl.waits import bounded

# Loading the function may import SymPy or a model's tokenizer.
START_DEADLINE_S = 120.0
# A queue that has not moved for this long gets another process; cheap functions never come to that.
GROW_AFTER_S = 0.05
# A coroutine function is cancelled at its deadline; it has this long to give way before its process is killed.
GRACE_S = 1.0
# A call that was lost because another one in the same process hung is repeated so often.
MAX_ATTEMPTS = 3
DEFAULT_PROCESSES = 32
# `reward.timeout` where nobody set it.
DEFAULT_TIMEOUT_S = 300.0

_LENGTH = struct.Struct("!I")
_CALL_ID = struct.Struct("!q")
_PID = struct.Struct("!i")


class CallTimeout(RewardError):
    """The reward function did not answer in time; its process was killed if it did not give way."""


class _Lost(Exception):
    """The process ended under a call that was not to blame."""


def function_spec(function: Callable[..., Any] | None = None, **spec: Any) -> dict[str, Any]:
    """What a scoring process needs to find the function: `path`/`name` (a file is loaded there), or a callable."""
    if function is not None:
        spec["pickled"] = cloudpickle.dumps(function)
    return spec | {"sys_path": [path for path in sys.path if path]}


class ScorePool:
    """Calls one reward function in processes of its own.

    A plain function gets a process per call in progress (at most `max_processes`, started as the queue demands); a
    coroutine function gets one process for all. `timeout_s` bounds each call from the moment its process has it;
    None means no bound. Not for use from several event loops.
    """

    def __init__(
        self, spec: dict[str, Any], *, timeout_s: float | None = None, max_processes: int = DEFAULT_PROCESSES
    ) -> None:
        self.spec = spec
        self.timeout_s = timeout_s
        self._max_processes = max(1, max_processes)
        self.timeouts = 0
        self.kills = 0
        self._template: _Template | None = None
        self._starting = asyncio.Lock()
        self._idle: list[_Scorer] = []
        self._busy: set[_Scorer] = set()
        self._queue: deque[asyncio.Future[_Scorer]] = deque()
        self._shared: _SharedScorer | None = None
        self._growing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the function; a function that cannot be loaded is an error here, before any call."""
        await self._loaded()

    async def _loaded(self) -> "_Template":
        async with self._starting:
            if self._template is None:
                self._template = await _Template.start(self.spec)
            return self._template

    async def call(self, **arguments: Any) -> tuple[float, dict[str, Any]]:
        """(score, extras) of one call.

        Raises
        ------
        CallTimeout, or RewardError with the function's own error.
        """
        template = await self._loaded()
        try:
            if template.is_async:
                return await self._call_shared(template, arguments)
            return await self._call_alone(template, arguments)
        except CallTimeout:
            self.timeouts += 1
            raise

    async def close(self) -> None:
        """End all processes."""
        if self._growing is not None:
            self._growing.cancel()
        for scorer in [*self._idle, *self._busy, *([self._shared] if self._shared else [])]:
            scorer.kill()
        self._idle, self._busy, self._shared = [], set(), None
        if self._template is not None:
            self._template.close()

    # -- plain functions: one call per process ----------------------------------------------------------------------

    async def _call_alone(self, template: "_Template", arguments: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        scorer = await self._acquire(template)
        try:
            result = await scorer.call(arguments, self.timeout_s)
        except RewardError as error:
            if isinstance(error, CallTimeout):
                self.kills += 1
                self._discard(scorer)
            elif scorer.alive:
                self._release(scorer)
            else:
                self._discard(scorer)
            raise
        except BaseException:
            # Cancelled: what the process does now concerns nobody.
            self._discard(scorer)
            raise
        self._release(scorer)
        return result

    async def _acquire(self, template: "_Template") -> "_Scorer":
        if self._idle:
            scorer = self._idle.pop()
            self._busy.add(scorer)
            return scorer
        waiter: asyncio.Future[_Scorer] = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        if self._growing is None or self._growing.done():
            self._growing = asyncio.create_task(self._grow(template), name="grow the scoring pool")
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release(waiter.result())
            raise

    async def _grow(self, template: "_Template") -> None:
        """Start processes while calls queue: the first at once, each further one when the queue has stood still."""
        while self._prune():
            if self._busy:
                head = self._queue[0]
                await asyncio.sleep(GROW_AFTER_S)
                if not self._prune() or self._queue[0] is not head or len(self._busy) >= self._max_processes:
                    continue
            try:
                scorer = await template.fork(_Scorer)
            except Exception as error:
                for waiter in self._queue:
                    if not waiter.done():
                        waiter.set_exception(error)
                self._queue.clear()
                return
            self._busy.add(scorer)
            self._release(scorer)

    def _prune(self) -> bool:
        while self._queue and self._queue[0].done():
            self._queue.popleft()
        return bool(self._queue)

    def _release(self, scorer: "_Scorer") -> None:
        """Give the process to the next in the queue, or keep it."""
        if self._prune():
            self._queue.popleft().set_result(scorer)
            return
        self._busy.discard(scorer)
        self._idle.append(scorer)

    def _discard(self, scorer: "_Scorer") -> None:
        self._busy.discard(scorer)
        scorer.kill()

    # -- coroutine functions: many calls in one process ---------------------------------------------------------------

    async def _call_shared(self, template: "_Template", arguments: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        for _ in range(MAX_ATTEMPTS):
            async with self._starting:
                if self._shared is None or not self._shared.alive:
                    self._shared = await template.fork(_SharedScorer)
            scorer = self._shared
            try:
                return await scorer.call(arguments, self.timeout_s)
            except _Lost:
                continue
            finally:
                if scorer.blocked:
                    scorer.blocked = False
                    self.kills += 1
        raise RewardError(
            "the call was lost with its process again and again, because other calls in it hung",
            got=f"{MAX_ATTEMPTS} attempts",
            remedy="let the reward function await instead of block",
        )


class _Template:
    """The process that has loaded the function and forks scorers."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, is_async: bool) -> None:
        self._process = process
        self._control = control
        self.is_async = is_async
        self._forking = asyncio.Lock()

    @classmethod
    async def start(cls, spec: dict[str, Any]) -> "_Template":
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "verl.experimental.reward_loop.score_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        loop = asyncio.get_running_loop()
        whom = f"the scoring process {process.pid}"
        try:
            await loop.sock_sendall(ours, frame(pickle.dumps(spec)))
            hello = await bounded(
                _receive_frame(ours), what="the reward function", whom=whom, deadline_s=START_DEADLINE_S
            )
        except BaseException:
            process.kill()
            ours.close()
            raise
        facts = msgspec.msgpack.decode(hello)
        if "error" in facts:
            ours.close()
            place = spec.get("path", "the given function")
            raise ConfigError(f"the reward function cannot be loaded:\n{facts['error']}", where=str(place))
        return cls(process, ours, facts["is_async"])

    async def fork(self, scorer_cls: type["_ScorerBase"]) -> Any:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        marker = os.memfd_create("verl-score-marker")
        os.pwrite(marker, _CALL_ID.pack(NOBODY), 0)
        try:
            async with self._forking:
                socket.send_fds(self._control, [FORK], [theirs.fileno(), marker])
                (pid,) = _PID.unpack(
                    await bounded(
                        _receive(self._control, _PID.size),
                        what="a scoring process",
                        whom=f"the template process {self._process.pid}",
                        deadline_s=START_DEADLINE_S,
                    )
                )
        except BaseException:
            ours.close()
            os.close(marker)
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        return scorer_cls(pid, reader, writer, marker)

    def close(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait(timeout=10)


class _ScorerBase:
    """One scoring process, seen from the reward worker."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, marker: int) -> None:
        self.pid = pid
        self._reader = reader
        self._writer = writer
        self._marker = marker
        self.alive = True
        try:
            # A handle, because the template reaps: the number alone could come to mean another process.
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = None

    def kill(self) -> None:
        """End the process and everything it has started."""
        if self._marker >= 0:
            os.close(self._marker)
            self._marker = -1
        self.alive = False
        self._writer.close()
        if self._handle is None:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            # Its children share its group, which outlives it.
            os.killpg(self.pid, signal.SIGKILL)
        os.close(self._handle)
        self._handle = None

    def _send(self, call_id: int, timeout_s: float | None, arguments: dict[str, Any]) -> None:
        try:
            payload = pickle.dumps(arguments)
        except (pickle.PicklingError, AttributeError, TypeError):
            # Objects of a class that exists in this process only.
            payload = cloudpickle.dumps(arguments)
        self._writer.write(frame(CALL.pack(call_id, math.nan if timeout_s is None else timeout_s) + payload))

    async def _read(self) -> list[Any]:
        header = await self._reader.readexactly(_LENGTH.size)
        return msgspec.msgpack.decode(await self._reader.readexactly(*_LENGTH.unpack(header)))


class _Scorer(_ScorerBase):
    """Takes one call at a time."""

    async def call(self, arguments: dict[str, Any], timeout_s: float | None) -> tuple[float, dict[str, Any]]:
        self._send(0, timeout_s, arguments)
        try:
            async with asyncio.timeout(timeout_s) as scope:
                return result_of(await self._read())
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise timed_out(timeout_s) from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.alive = False
            raise RewardError("the scoring process died under the call", remedy="see its output above") from error


class _SharedScorer(_ScorerBase):
    """Takes many calls at once; answers carry the id of their call."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.blocked = False
        self._blamed = NOBODY
        self._ids = itertools.count()
        self._calls: dict[int, asyncio.Future[list[Any]]] = {}
        self._listening = asyncio.create_task(self._listen(), name=f"scores of {self.pid}")

    async def call(self, arguments: dict[str, Any], timeout_s: float | None) -> tuple[float, dict[str, Any]]:
        call_id = next(self._ids)
        future = self._calls[call_id] = asyncio.get_running_loop().create_future()
        self._send(call_id, timeout_s, arguments)
        try:
            async with asyncio.timeout(None if timeout_s is None else timeout_s + GRACE_S) as scope:
                return result_of(await future, timeout_s)
        except TimeoutError as error:
            if not scope.expired():
                raise
            if self.alive:
                self.blocked = True
                self.kill()
            if self._blamed in (call_id, NOBODY):
                raise timed_out(timeout_s) from error
            # Somebody else held the event loop; this call had no chance.
            raise _Lost from error
        finally:
            self._calls.pop(call_id, None)

    def kill(self) -> None:
        self._blamed = self._blocker()
        super().kill()
        self._listening.cancel()
        for call_id, future in self._calls.items():
            if not future.done():
                future.set_exception(timed_out(None) if call_id == self._blamed else _Lost())

    def _blocker(self) -> int:
        """The call whose code runs right now, or NOBODY."""
        return NOBODY if self._marker < 0 else _CALL_ID.unpack(os.pread(self._marker, _CALL_ID.size, 0))[0]

    async def _listen(self) -> None:
        try:
            while True:
                answer = await self._read()
                future = self._calls.get(answer[0])
                if future is not None and not future.done():
                    future.set_result(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.alive = False
            blocker = self._blocker()
            for call_id, future in self._calls.items():
                if not future.done():
                    died = RewardError("the scoring process died under the call", remedy="see its output above")
                    future.set_exception(died if call_id == blocker or blocker == NOBODY else _Lost())


def result_of(answer: list[Any], timeout_s: float | None = None) -> tuple[float, dict[str, Any]]:
    """(score, extras) of an answer, or the error it carries."""
    _, kind, first, extras = answer
    if kind == "ok":
        return first, extras
    raise timed_out(timeout_s) if kind == "timeout" else RewardError(f"the reward function failed: {first}")


def timed_out(timeout_s: float | None) -> CallTimeout:
    return CallTimeout(
        "the reward function did not answer" + ("" if timeout_s is None else f" within {timeout_s:g} s"),
        remedy="set +reward.timeout if it needs longer",
    )


async def _receive(sock: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        part = await loop.sock_recv(sock, size - len(data))
        if not part:
            raise PeerLost("the template of the scoring processes has died", remedy="see its output above")
        data += part
    return data


async def _receive_frame(sock: socket.socket) -> bytes:
    (size,) = _LENGTH.unpack(await _receive(sock, _LENGTH.size))
    return await _receive(sock, size)
