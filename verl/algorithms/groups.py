# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Statistics over groups, the trajectories of one prompt, without a loop over samples.

Shapes: B trajectories, N groups, T response tokens. Sums run in float64: at 1.0 against 1.00001 a float32 mean is
already wrong in the second digit of the advantage.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from verl.algorithms.tensor_math import divide, zero_outside
from verl.errors import DataError


class Scored(NamedTuple):
    """One score for each trajectory, and which trajectories take part."""

    score_B: Tensor
    """float64; 0 where the trajectory does not take part."""
    valid_B: Tensor
    """bool; false for a row with no token left in its mask (rejected), or whose reward is NaN (could not be scored)."""
    mask_BT: Tensor
    """bool response mask, all false in rows that do not take part."""


def score_rows(token_level_rewards: Tensor, response_mask: Tensor) -> Scored:
    """Sum the rewards of each trajectory's policy tokens; a reward on a token outside the mask does not count."""
    mask_BT = response_mask.bool()
    score_B = zero_outside(mask_BT, token_level_rewards).sum(-1, dtype=torch.float64)
    valid_B = mask_BT.any(-1) & torch.isfinite(score_B)
    return Scored(zero_outside(valid_B, score_B), valid_B, mask_BT & valid_B.unsqueeze(-1))


def group_ids(index: Any, device: torch.device | str | None = None) -> Tensor:
    """Integers 0..N-1 that are equal where the entries of `index` (uids of any hashable kind) are equal: [B] int64."""
    if isinstance(index, Tensor):
        return torch.unique(index, return_inverse=True)[1].to(device)
    array = index if isinstance(index, np.ndarray) else _object_array(index)
    if array.ndim != 1:
        raise DataError("a group index has one entry for each trajectory", got=array.shape, expected="(B,)")
    if array.dtype == object:
        number: dict[Any, int] = {}
        inverse = np.fromiter((number.setdefault(uid, len(number)) for uid in array), np.int64, len(array))
    else:
        inverse = np.unique(array, return_inverse=True)[1].astype(np.int64)
    return torch.from_numpy(inverse).to(device)


def _object_array(index: Sequence[Any]) -> np.ndarray:
    array = np.empty(len(index), dtype=object)
    array[:] = list(index)
    return array


class Groups:
    """The partition of B trajectories into N groups; `valid_B` says which of them count."""

    def __init__(self, index: Any, valid_B: Tensor) -> None:
        self.id_B = group_ids(index, valid_B.device)
        if self.id_B.shape != valid_B.shape:
            raise DataError("index and batch differ in length", got=len(self.id_B), expected=len(valid_B))
        self.number = int(self.id_B.max()) + 1 if len(self.id_B) else 0
        self.valid_B = valid_B
        self.size_B = self.sum(torch.ones_like(valid_B, dtype=torch.float64))
        """Valid members of each trajectory's group."""

    def sum(self, values: Tensor) -> Tensor:
        """Sum over the valid members of each group, given back to every member: [B, ...] -> [B, ...]."""
        counted = values * self.valid_B.view(-1, *[1] * (values.dim() - 1)).to(values.dtype)
        totals = counted.new_zeros(self.number, *values.shape[1:]).index_add_(0, self.id_B, counted)
        return totals[self.id_B]

    def extreme(self, values_B: Tensor, largest: bool) -> Tensor:
        """Largest or smallest value among the valid members, given back to every member."""
        worst = -torch.inf if largest else torch.inf
        counted = torch.where(self.valid_B, values_B, worst)
        found = counted.new_full((self.number,), worst)
        found = found.scatter_reduce(0, self.id_B, counted, "amax" if largest else "amin")
        return found[self.id_B]

    def mean(self, values_B: Tensor) -> Tensor:
        """Mean over the valid members; exactly their value where all are equal."""
        # Measured from the smallest member: n equal numbers need not sum to n times the number.
        base_B = torch.nan_to_num(self.extreme(values_B, largest=False), posinf=0.0)
        return base_B + divide(self.sum(values_B - base_B), self.size_B)

    def std(self, values_B: Tensor) -> Tensor:
        """Sample standard deviation (n - 1) over the valid members; 0 for fewer than two."""
        deviation_B = values_B - self.mean(values_B)
        return (self.sum(deviation_B.square()) / (self.size_B - 1).clamp(min=1)).sqrt()
