# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The bounded queue between rollouter and trainer.

It holds metadata and object references, never tensors. A full queue makes the producer wait; nothing is evicted.
The end is a state with a reason: takers drain what is left, then learn why no more will come.
"""

import asyncio
import bisect
from collections import deque
from typing import Any

import ray

from verl.errors import ConfigError, VerlError
from verl.waits import bounded, expired

# A put waits only when the trainer has stopped taking for longer than a whole budget of groups.
PUT_DEADLINE_S = 1800.0
CALL_DEADLINE_S = 60.0
# A taker comes back to the event loop this often, so that a lost client does not hold a slot for hours.
TAKE_SLICE_S = 20.0


class QueueClosed(VerlError, RuntimeError):
    """No more samples will come; `failed` tells an end of data from a failure of the producer."""

    def __init__(self, reason: str, failed: bool) -> None:
        self.failed = failed
        super().__init__(f"the message queue is closed: {reason}")
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return QueueClosed, (self.reason, self.failed)


class MessageQueueCore:
    """The queue itself, usable without Ray; conservation: produced == consumed + cleared + size."""

    def __init__(self, config: Any = None, max_queue_size: int = 1000) -> None:
        if max_queue_size is None or max_queue_size < 1:
            raise ConfigError("the message queue needs a positive size", got=max_queue_size)
        self.max_queue_size = max_queue_size
        self._items: list[Any] = []
        self._validation: deque[Any] = deque()
        self._produced = self._consumed = self._cleared = 0
        self._closed: QueueClosed | None = None
        self._changed_in: asyncio.Condition | None = None

    @property
    def _changed(self) -> asyncio.Condition:
        # Made at first use, inside the loop that uses it: Ray builds actors outside their event loop.
        if self._changed_in is None:
            self._changed_in = asyncio.Condition()
        return self._changed_in

    async def put_sample(self, sample: Any, deadline_s: float = PUT_DEADLINE_S) -> bool:
        """Append `sample`, waiting while the queue is full; True when it was accepted.

        Raises
        ------
        QueueClosed : the queue was closed before there was room.
        WaitTimeout : no room within `deadline_s`; the trainer has stopped taking.
        """
        async with self._changed:
            await self._wait_until(
                lambda: self._closed is not None or len(self._items) < self.max_queue_size,
                what=f"room in the message queue ({self.max_queue_size} groups, all waiting)",
                whom="the trainer",
                deadline_s=deadline_s,
            )
            if self._closed is not None:
                raise self._closed
            # Oldest weights first: what has waited longest must not age further behind fresher groups.
            bisect.insort(self._items, sample, key=_start_version)
            self._produced += 1
            self._changed.notify_all()
        return True

    async def take(self, count: int, slice_s: float = TAKE_SLICE_S) -> list[Any]:
        """`count` samples at once; an empty list when they are not there within `slice_s` (ask again).

        After an orderly close the remainder comes once, shorter than `count`.

        Raises
        ------
        QueueClosed : closed and drained, or closed by a failure.
        """
        async with self._changed:
            try:
                async with asyncio.timeout(slice_s):
                    await self._changed.wait_for(lambda: self._closed is not None or len(self._items) >= count)
            except TimeoutError:
                return []
            if self._closed is not None and (self._closed.failed or not self._items):
                raise self._closed
            taken, self._items = self._items[:count], self._items[count:]
            self._consumed += len(taken)
            self._changed.notify_all()
            return taken

    async def get_sample(self) -> tuple[Any, int] | None:
        """One sample and the number left; None when the queue is closed and empty (verl's call)."""
        async with self._changed:
            await self._wait_until(
                lambda: self._closed is not None or bool(self._items),
                what="a sample in the message queue",
                whom="the rollouter",
                deadline_s=PUT_DEADLINE_S,
            )
            if self._closed is not None and self._closed.failed:
                raise self._closed
            if not self._items:
                return None
            self._consumed += 1
            sample = self._items.pop(0)
            self._changed.notify_all()
            return sample, len(self._items)

    async def close(self, reason: str, failed: bool = False) -> None:
        """End the stream; the first reason stays, but a failure overrides an orderly end."""
        async with self._changed:
            if self._closed is None or (failed and not self._closed.failed):
                self._closed = QueueClosed(reason, failed)
            self._changed.notify_all()

    async def shutdown(self) -> None:
        """verl's name for an orderly close."""
        await self.close("shut down")

    async def get_queue_size(self) -> int:
        return len(self._items)

    async def get_statistics(self) -> dict[str, Any]:
        return {
            "queue_size": len(self._items),
            "total_produced": self._produced,
            "total_consumed": self._consumed,
            "dropped_samples": self._cleared,
            "max_queue_size": self.max_queue_size,
        }

    async def clear_queue(self) -> None:
        """Forget what is queued; counted under `dropped_samples`."""
        async with self._changed:
            self._cleared += len(self._items)
            self._items.clear()
            self._changed.notify_all()

    async def get_memory_usage(self) -> dict[str, Any]:
        """Bytes of the payloads that the queue's references keep alive, as their metadata tells."""
        size = sum(getattr(item, "payload_bytes", 0) for item in self._items)
        return {
            "queue_samples": len(self._items),
            "estimated_memory_bytes": size,
            "estimated_memory_mb": size / (1 << 20),
        }

    async def put_validate(self, data: Any) -> None:
        self._validation.append(data)

    async def get_validate(self) -> Any | None:
        return self._validation.popleft() if self._validation else None

    async def _wait_until(self, ready: Any, *, what: str, whom: str, deadline_s: float) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                await self._changed.wait_for(ready)
        except TimeoutError:
            raise expired(what, whom, deadline_s) from None


class RolloutFailed(VerlError, RuntimeError):
    """The rollouter ended by a failure; its cause is in the message."""


def _start_version(sample: Any) -> int:
    return getattr(sample, "start_version", 0)


# Control actors ask for no CPU: a laptop has two, and the queue only moves references.
MessageQueue = ray.remote(num_cpus=0, max_concurrency=64)(MessageQueueCore)  # type: ignore[call-overload]  # not in Ray's stub


class MessageQueueClient:
    """The queue as its users see it: one coroutine per call, each with a deadline that names the queue."""

    def __init__(self, queue_actor: Any) -> None:
        self.queue_actor = queue_actor

    async def _call(self, method: str, *args: Any, deadline_s: float = CALL_DEADLINE_S, **kwargs: Any) -> Any:
        return await bounded(
            getattr(self.queue_actor, method).remote(*args, **kwargs),
            what=f"an answer to {method}",
            whom="the message queue",
            deadline_s=deadline_s,
        )

    async def put_sample(self, sample: Any) -> bool:
        return await self._call("put_sample", sample, deadline_s=PUT_DEADLINE_S + CALL_DEADLINE_S)

    async def take(self, count: int, slice_s: float = TAKE_SLICE_S) -> list[Any]:
        return await self._call("take", count, slice_s, deadline_s=slice_s + CALL_DEADLINE_S)

    async def get_sample(self) -> tuple[Any, int] | None:
        return await self._call("get_sample", deadline_s=PUT_DEADLINE_S + CALL_DEADLINE_S)

    async def close(self, reason: str, failed: bool = False) -> None:
        await self._call("close", reason, failed)

    async def shutdown(self) -> None:
        await self._call("shutdown")

    async def get_queue_size(self) -> int:
        return await self._call("get_queue_size")

    async def get_statistics(self) -> dict[str, Any]:
        return await self._call("get_statistics")

    async def clear_queue(self) -> None:
        await self._call("clear_queue")

    async def get_memory_usage(self) -> dict[str, Any]:
        return await self._call("get_memory_usage")

    async def put_validate(self, data: Any) -> None:
        await self._call("put_validate", data)

    async def get_validate(self) -> Any | None:
        return await self._call("get_validate")

    # For callers without an event loop (verl's names).
    def get_sample_sync(self) -> tuple[Any, int] | None:
        return asyncio.run(self.get_sample())

    def get_validate_sync(self) -> Any | None:
        return asyncio.run(self.get_validate())

    def get_statistics_sync(self) -> dict[str, Any]:
        return asyncio.run(self.get_statistics())
