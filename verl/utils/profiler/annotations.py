# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Named ranges that torch.profiler, Nsight and rocprof show; they cost nothing while no profiler runs."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_open_ranges: dict[str, Any] = {}


@contextmanager
def mark_range(
    name: str, *, color: str | None = None, domain: str | None = None, category: str | None = None
) -> Iterator[None]:
    """A range around the block; colour, domain and category are accepted for callers that give them to NVTX."""
    # A process without torch has no profiler either, and must not load torch for it.
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "profiler"):
        yield
        return
    with torch.profiler.record_function(name):
        yield


def mark_start_range(
    message: str | None = None, color: str | None = None, domain: str | None = None, category: str | None = None
) -> str:
    """Open a range; `mark_end_range` with the returned id closes it."""
    scope = mark_range(message or "range")
    scope.__enter__()
    range_id = f"{message or 'range'}-{id(scope)}"
    _open_ranges[range_id] = scope
    return range_id


def mark_end_range(range_id: str) -> None:
    """Close a range opened by `mark_start_range`; an unknown id is nothing to close."""
    scope = _open_ranges.pop(range_id, None)
    if scope is not None:
        scope.__exit__(None, None, None)


def mark_annotate(
    message: str | None = None, color: str | None = None, domain: str | None = None, category: str | None = None
) -> Callable[[F], F]:
    """Decorator: each call of the function is a range named `message`, or after the function."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            with mark_range(message or function.__name__):
                return function(*args, **kwargs)

        return inner  # type: ignore[return-value]

    return decorate
