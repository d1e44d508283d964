# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every blocking edge has a deadline and a name.

`waiting_on` marks a wait for observers (progress line, stack dumps); `bounded` awaits with a deadline.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from verl.errors import WaitTimeout

T = TypeVar("T")


@dataclass(frozen=True)
class Wait:
    """One wait in progress: what is awaited, from whom, since when (monotonic s), until when (s after the start)."""

    what: str
    whom: str
    since_s: float
    deadline_s: float

    def describe(self) -> str:
        return f"{self.what} from {self.whom} ({time.monotonic() - self.since_s:.1f} s of {self.deadline_s:.0f} s)"


_waits: dict[int, Wait] = {}
_tickets = itertools.count()
_lock = threading.Lock()


@contextmanager
def waiting_on(what: str, whom: str, deadline_s: float) -> Iterator[Wait]:
    """Register a wait while the block runs; the block itself must honour `deadline_s`."""
    wait = Wait(what, whom, time.monotonic(), deadline_s)
    with _lock:
        ticket = next(_tickets)
        _waits[ticket] = wait
    try:
        yield wait
    finally:
        with _lock:
            _waits.pop(ticket, None)


def current_waits() -> list[Wait]:
    """Waits of this process, oldest first."""
    with _lock:
        return sorted(_waits.values(), key=lambda wait: wait.since_s)


def expired(what: str, whom: str, deadline_s: float, remedy: str | None = None) -> WaitTimeout:
    """The error for a wait that ran out, naming the silent peer."""
    return WaitTimeout(f"waited {deadline_s:.1f} s for {what} from {whom}", remedy=remedy)


async def bounded(awaitable: Awaitable[T], *, what: str, whom: str, deadline_s: float, remedy: str | None = None) -> T:
    """Await with a deadline.

    Raises
    ------
    WaitTimeout
        names `what` and `whom` when `deadline_s` seconds have passed.
    """
    with waiting_on(what, whom, deadline_s):
        try:
            async with asyncio.timeout(deadline_s) as scope:
                return await awaitable
        except TimeoutError as error:
            # A TimeoutError from inside the awaitable is its own story; only our deadline becomes ours.
            if scope.expired():
                raise expired(what, whom, deadline_s, remedy) from error
            raise
