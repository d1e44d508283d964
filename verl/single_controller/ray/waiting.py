# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Waiting for answers of actors: with a deadline, raising the first failure at once, naming who failed or is silent."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from verl.errors import PeerLost
from verl.single_controller.base.worker_group import Peer
from verl.waits import expired, waiting_on


@dataclass(frozen=True)
class Waiter:
    """Waits for actor calls; `peers` maps an actor's id (hex) to who it is. Picklable, so that futures travel."""

    peers: Mapping[str, Peer]
    deadline_s: float

    def __call__(self, refs: Sequence[ray.ObjectRef]) -> list[Any]:
        return self.wait(refs, "answer", self.deadline_s)

    def wait(self, refs: Sequence[ray.ObjectRef], what: str, deadline_s: float) -> list[Any]:
        """Values in order; blocks this thread."""
        end_s = time.monotonic() + deadline_s
        values: dict[ray.ObjectRef, Any] = {}
        pending = list(dict.fromkeys(refs))
        with waiting_on(what, self._names(pending), deadline_s):
            while pending:
                ready, pending = ray.wait(pending, num_returns=1, timeout=max(0.0, end_s - time.monotonic()))
                if not ready:
                    raise expired(what, self._names(pending), deadline_s)
                for ref in ready:
                    values[ref] = self._value(ref, what, deadline_s, end_s)
        return [values[ref] for ref in refs]

    def _value(self, ref: ray.ObjectRef, what: str, deadline_s: float, end_s: float) -> Any:
        try:
            return ray.get(ref, timeout=max(1.0, end_s - time.monotonic()))
        except GetTimeoutError as error:
            raise expired(what, self.name(ref), deadline_s) from error
        except RayError as error:
            self._raise(ref, what, error)

    async def wait_async(self, refs: Sequence[ray.ObjectRef], what: str, deadline_s: float) -> list[Any]:
        """Values in order; the event loop goes on."""
        tasks = {ref: asyncio.ensure_future(self._value_async(ref, what)) for ref in refs}
        try:
            with waiting_on(what, self._names(refs), deadline_s):
                done, _ = await asyncio.wait(tasks.values(), timeout=deadline_s, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            silent = [ref for ref, task in tasks.items() if task not in done]
            if silent:
                raise expired(what, self._names(silent), deadline_s)
            return [tasks[ref].result() for ref in refs]
        finally:
            for task in tasks.values():
                task.cancel()

    async def _value_async(self, ref: ray.ObjectRef, what: str) -> Any:
        try:
            return await ref
        except RayError as error:
            self._raise(ref, what, error)

    def _raise(self, ref: ray.ObjectRef, what: str, error: RayError) -> NoReturn:
        if isinstance(error, RayActorError):
            raise PeerLost(f"the worker died during {what}", where=self.name(ref), got=_reason(error)) from error
        if isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
            # The exception itself, so that callers can catch it by type; where it came from goes into a note.
            error.cause.add_note(f"raised by {what} on {self.name(ref)}\n{error}")
            raise error.cause from None
        error.add_note(f"raised by {what} on {self.name(ref)}")
        raise error

    def name(self, ref: ray.ObjectRef) -> str:
        """Who computes the value behind the handle."""
        actor_id = ref.task_id().actor_id().hex()
        return str(self.peers.get(actor_id, f"actor {actor_id[:12]}"))

    def _names(self, refs: Sequence[ray.ObjectRef]) -> str:
        names = list(dict.fromkeys(self.name(ref) for ref in refs))
        return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _reason(error: RayActorError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:400]
