# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From spans of many processes to a few lanes that a person can read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Lane → names of the spans that belong to it, top lane first.
LANES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("generation", ("generate_group",)),
    ("reward", ("score",)),
    ("training", ("train",)),
    ("waiting for data", ("wait_for_batch",)),
    ("weight update", ("update_weights",)),
    ("validation", ("validate",)),
    ("checkpoint", ("save_checkpoint",)),
)


@dataclass(frozen=True)
class Lane:
    """One kind of work: disjoint intervals (unix s) in which at least one process did it."""

    name: str
    intervals: Sequence[tuple[float, float]]


def lanes(spans: Iterable[Mapping[str, Any]]) -> list[Lane]:
    """The lanes that have any work, in the order of `LANES`."""
    by_name: dict[str, list[tuple[float, float]]] = {}
    for span in spans:
        by_name.setdefault(span["name"], []).append((span["start_s"], span["end_s"]))
    found = ((lane, [item for name in names for item in by_name.get(name, [])]) for lane, names in LANES)
    return [Lane(lane, union(intervals)) for lane, intervals in found if intervals]


def union(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Overlapping intervals joined: sorted, disjoint, the same total cover."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def in_flight(spans: Iterable[Mapping[str, Any]], name: str = "generate_group") -> tuple[list[float], list[int]]:
    """Moments (unix s) and the number of spans called `name` that are open from then on, of one role only.

    A group is seen by the rollouter and by the worker that runs it; counting both would double it.
    """
    chosen = [span for span in spans if span["name"] == name]
    role = min((span["role"] for span in chosen), default="")
    changes = sorted(
        change
        for span in chosen
        if _kind(span["role"]) == _kind(role)
        for change in ((span["start_s"], 1), (span["end_s"], -1))
    )
    times, counts, count = [], [], 0
    for time_s, delta in changes:
        count += delta
        times.append(time_s)
        counts.append(count)
    return times, counts


def _kind(role: str) -> str:
    return role.rstrip("0123456789").rstrip("-")
