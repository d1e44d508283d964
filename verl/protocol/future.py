# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`DataProtoFuture`: the answer of a worker group that is still being computed; knows no Ray."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from verl.protocol.data_proto import DataProto
from verl.waits import expired

DEFAULT_DEADLINE_S = 600.0


@dataclass
class DataProtoFuture:
    """Handles of the parts, and how to make one batch of them.

    `fetch` turns the list of handles into the list of parts, with a deadline and names of its own; `collect_fn` joins
    the parts; `dispatch_fn`, where set, picks this future's share of the joined batch.
    """

    collect_fn: Callable[[list[Any]], Any]
    futures: list[Any]
    dispatch_fn: Callable[[Any], Any] | None = None
    fetch: Callable[[list[Any]], list[Any]] | None = None

    @staticmethod
    def concat(data: Sequence[Any], fetch: Callable[[list[Any]], list[Any]] | None = None) -> "DataProtoFuture":
        """A future whose value is the concatenation of the parts behind the handles."""
        return DataProtoFuture(collect_fn=DataProto.concat, futures=list(data), fetch=fetch)

    def chunk(self, chunks: int) -> "list[DataProtoFuture]":
        """`chunks` futures, each for one part of the value; nothing is fetched yet."""
        return [
            DataProtoFuture(self.collect_fn, self.futures, partial(_share, self.dispatch_fn, part, chunks), self.fetch)
            for part in range(chunks)
        ]

    def get(self) -> Any:
        """Wait for the parts and return the value."""
        value = self.collect_fn((self.fetch or _results)(self.futures))
        return value if self.dispatch_fn is None else self.dispatch_fn(value)


def _results(handles: list[Any]) -> list[Any]:
    """Values of handles as they come: `concurrent.futures.Future`, or a Ray reference, which makes one."""
    end_s = time.monotonic() + DEFAULT_DEADLINE_S
    values = []
    for handle in handles:
        future = handle if isinstance(handle, Future) else handle.future()
        try:
            values.append(future.result(timeout=max(0.0, end_s - time.monotonic())))
        except TimeoutError as error:
            if future.done():
                raise
            raise expired("value", repr(handle), DEFAULT_DEADLINE_S) from error
    return values


def _share(first: Callable[[Any], Any] | None, part: int, chunks: int, value: Any) -> Any:
    value = value if first is None else first(value)
    return value.chunk(chunks)[part]
