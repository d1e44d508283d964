# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Summary numbers of a masked tensor; zero, not NaN, where nothing is left.

Shapes: any; in this room B trajectories, T response tokens.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Summary(NamedTuple):
    """Mean, sample standard deviation (0 for one value), largest and smallest."""

    mean: float
    std: float
    max: float
    min: float


def summarize(values: Tensor, mask: Tensor) -> Summary:
    """Summary of the values where the mask is set."""
    kept = values[mask.bool()].double()
    if not kept.numel():
        return Summary(0.0, 0.0, 0.0, 0.0)
    deviation = kept.std().item() if kept.numel() > 1 else 0.0
    return Summary(kept.mean().item(), deviation, kept.max().item(), kept.min().item())


def fraction(condition: Tensor, mask: Tensor) -> float:
    """Share of the masked places where the condition holds."""
    mask = mask.bool()
    return ((condition & mask).sum() / mask.sum().clamp(min=1)).item()


def effective_sample_size(weights: Tensor, mask: Tensor) -> float:
    """`1 / mean((w / mean w)^2)`: 1 where all weights are equal, 1/n where one of n has all the weight (Kish 1965)."""
    kept = weights[mask.bool()].double()
    if not kept.numel() or not torch.any(kept != 0):
        return 0.0
    return (kept.mean().square() / kept.square().mean()).item()
