# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics of micro-batches and ranks to the numbers of one mini-batch, each by its own rule."""

from typing import Any

import torch.distributed as dist

from verl.utils.metric import Metric, merge_metrics


def join_metrics(parts: list[dict[str, Any]], group: dist.ProcessGroup | None) -> dict[str, float]:
    """One number a name, the same on every rank: micro-batches first, then data-parallel ranks.

    Every rank has every name: the loss function returns the same names for each micro-batch.
    """
    merged = merge_metrics(parts)
    size = dist.get_world_size(group)
    if size == 1:
        return {name: metric.aggregate() for name, metric in merged.items()}
    gathered: list[dict[str, Metric]] = [{} for _ in range(size)]
    dist.all_gather_object(gathered, merged, group=group)
    return {name: Metric.aggregate_dp([rank[name] for rank in gathered]) for name in merged}
