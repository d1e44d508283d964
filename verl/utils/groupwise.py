# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Public path of the group statistics: `verl.algorithms.groups`."""

from typing import Any

import torch
from torch import Tensor

from verl.algorithms.groups import Groups, group_ids

__all__ = ["as_torch_index", "group_mean_std"]

as_torch_index = group_ids


@torch.no_grad()
def group_mean_std(
    scores: Tensor, gidx: Tensor, eps: float = 1e-6, device: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, sample standard deviation and size of each group [N], from scores [B] and group numbers [B].

    A group of one has mean 0 and deviation 1; a deviation is never below `eps`.
    """
    scores = scores.to(device)
    number = int(gidx.max()) + 1 if gidx.numel() else 0
    groups = Groups(gidx, torch.ones_like(scores, dtype=torch.bool))
    alone = groups.size_B <= 1
    mean_B = torch.where(alone, 0.0, groups.mean(scores.double()))
    std_B = torch.where(alone, 1.0, groups.std(scores.double()).clamp(min=eps))

    def by_group(values_B: Tensor) -> Tensor:
        return values_B.new_zeros(number).index_copy_(0, gidx.to(values_B.device), values_B).to(scores.dtype)

    return by_group(mean_B), by_group(std_B), by_group(groups.size_B)
