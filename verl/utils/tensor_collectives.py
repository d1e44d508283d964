# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Collectives over dictionaries of tensors, and statistics over ranks."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from verl.algorithms.tensor_math import masked_sum


def broadcast_dict_tensor(tensors: Any, src: int, group: Any) -> None:
    """Overwrite every tensor of a dict or TensorDict with that of the rank `src`, in the order of the names."""
    for name in sorted(tensors.keys()):
        dist.broadcast(tensors[name], src=src, group=group)


def allgather_dict_tensors(tensors: Any, size: int, group: Any, dim: int = 0) -> Any:
    """The tensors of `size` ranks joined along `dim`; a TensorDict for a TensorDict, else a dict."""
    joined = {}
    for name in sorted(tensors.keys()):
        local = tensors[name].contiguous()
        parts = [torch.empty_like(local) for _ in range(size)]
        dist.all_gather(parts, local, group=group)
        joined[name] = torch.cat(parts, dim=dim)
    if isinstance(tensors, dict):
        return joined
    return type(tensors)(source=joined, batch_size=tensors.batch_size[0] * size)


def allgather_dict_into_dict(data: dict[str, Any], group: Any = None) -> dict[str, list[Any]]:
    """Small Python values of every rank, as lists by name in the order of ranks."""
    parts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(parts, data, group=group)
    return {name: [part[name] for part in parts] for name in data}


def distributed_mean_max_min_std(
    local_tensor: Tensor, compute_max: bool = True, compute_min: bool = True, compute_std: bool = True
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Mean, largest, smallest, sample standard deviation over the elements of all ranks; None where not asked for."""
    values = local_tensor.double()
    total = torch.stack([values.sum(), torch.tensor(float(values.numel()), dtype=torch.float64, device=values.device)])
    dist.all_reduce(total)
    mean = total[0] / total[1].clamp(min=1)
    largest = _extreme(values, dist.ReduceOp.MAX) if compute_max else None
    smallest = _extreme(values, dist.ReduceOp.MIN) if compute_min else None
    std = None
    if compute_std:
        squares = (values - mean).square().sum()
        dist.all_reduce(squares)
        std = (squares / (total[1] - 1).clamp(min=1)).sqrt()
    return mean, largest, smallest, std


def _extreme(values: Tensor, op: Any) -> Tensor:
    empty = -torch.inf if op == dist.ReduceOp.MAX else torch.inf
    padded = torch.cat([values.flatten(), values.new_full((1,), empty)])
    found = padded.max() if op == dist.ReduceOp.MAX else padded.min()
    dist.all_reduce(found, op=op)
    return found


def distributed_masked_mean(local_tensor: Tensor, local_mask: Tensor) -> Tensor:
    """Mean over the masked elements of all ranks; 0 where there is none."""
    total = torch.stack([masked_sum(local_tensor.double(), local_mask), local_mask.double().sum()])
    dist.all_reduce(total)
    return total[0] / total[1].clamp(min=1)
