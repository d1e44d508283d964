# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Timers whose seconds end up as `timing_s/<name>`."""

import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

from verl.utils.profiler.annotations import mark_range


@contextmanager
def simple_timer(name: str, timing_raw: MutableMapping[str, float]) -> Iterator[None]:
    """Add the seconds of the block to `timing_raw[name]`, also when the block raises."""
    start_s = time.perf_counter()
    try:
        yield
    finally:
        timing_raw[name] = timing_raw.get(name, 0.0) + time.perf_counter() - start_s


@contextmanager
def marked_timer(
    name: str,
    timing_raw: MutableMapping[str, float],
    color: str | None = None,
    domain: str | None = None,
    category: str | None = None,
) -> Iterator[None]:
    """`simple_timer` that a running profiler also sees as a range called `name`."""
    with mark_range(name, color=color, domain=domain, category=category), simple_timer(name, timing_raw):
        yield
