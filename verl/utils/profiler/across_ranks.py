# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Seconds of all ranks: together, apart, and how far the slow ones are from the rest."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from verl.errors import DataError

__all__ = ["gather_timing", "reduce_timing", "topk_reduce_ratio_min_max"]

T = TypeVar("T")


def gather_timing(timing_raw: Mapping[str, float]) -> dict[str, list[float]]:
    """Each name's seconds on every rank, in rank order; ranks with other names than this one's are an error."""
    everywhere = _gather({name: float(seconds) for name, seconds in timing_raw.items()})
    for rank, timing in enumerate(everywhere):
        if timing.keys() != timing_raw.keys():
            raise DataError(
                "the ranks have timed different things",
                where=f"rank {rank}",
                got=sorted(timing.keys() ^ timing_raw.keys()),
            )
    return {name: [timing[name] for timing in everywhere] for name in sorted(timing_raw)}


def reduce_timing(timing_raw: Mapping[str, float], reduce_op: Any = dist.ReduceOp.AVG) -> dict[str, float]:
    """Each name's mean (or sum, largest, smallest) over the ranks, as `reduce_op` says."""
    # Not all_reduce: gloo has no mean.
    reductions: dict[Any, Callable[[list[float]], float]] = {
        dist.ReduceOp.AVG: lambda values: sum(values) / len(values),
        dist.ReduceOp.SUM: sum,
        dist.ReduceOp.MAX: max,
        dist.ReduceOp.MIN: min,
    }
    return {name: float(reductions[reduce_op](values)) for name, values in gather_timing(timing_raw).items()}


def topk_reduce_ratio_min_max(timing: float, k: int = 10) -> tuple[float, float, float]:
    """Share of ranks above the (100 - `k`)th percentile of the seconds, smallest seconds, largest seconds."""
    seconds = torch.tensor(_gather(float(timing)), dtype=torch.float64)
    slow = seconds > torch.quantile(seconds, 1 - k / 100)
    return slow.double().mean().item(), seconds.min().item(), seconds.max().item()


def _gather(value: T) -> list[T]:
    """The value of every rank, in rank order; one value without a process group."""
    if not dist.is_initialized():
        return [value]
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, value)
    return parts
