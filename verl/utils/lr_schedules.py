# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Learning-rate schedules with warm-up, as factors on each parameter group's rate."""

import math
from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def get_constant_schedule_with_warmup(optimizer: Optimizer, num_warmup_steps: int, last_epoch: int = -1) -> LambdaLR:
    """Linear from 0 to the full rate, then constant."""
    return LambdaLR(optimizer, _after_warmup(num_warmup_steps, lambda step: 1.0), last_epoch)


def get_cosine_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    min_lr_ratio: float = 0.0,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
    init_lr_ratio: float | None = None,
    zero_indexed_step: bool = True,
) -> LambdaLR:
    """Linear from `init_lr_ratio` (0), then cosine down to `min_lr_ratio` at `num_training_steps`.

    `zero_indexed_step=False` counts the first step as one, so that it already learns.
    """
    length = max(1, num_training_steps - num_warmup_steps)

    def cosine(step: int) -> float:
        wave = math.cos(2 * math.pi * num_cycles * (step - num_warmup_steps) / length)
        return max(min_lr_ratio, 0.5 * (1 + min_lr_ratio) + 0.5 * (1 - min_lr_ratio) * wave)

    first = 0 if zero_indexed_step else 1
    factor = _after_warmup(num_warmup_steps, cosine, init_lr_ratio or 0.0)
    return LambdaLR(optimizer, lambda step: factor(step + first), last_epoch)


def get_wsd_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    min_lr_ratio: float = 0.0,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
    stable_ratio: float = 0.9,
) -> LambdaLR:
    """Warm-up, the full rate for `stable_ratio` of what follows, then cosine down (arXiv 2404.06395)."""
    remaining = max(0, num_training_steps - num_warmup_steps)
    stable_until = num_warmup_steps + int(remaining * stable_ratio)
    length = max(1, num_training_steps - stable_until)

    def decay(step: int) -> float:
        if step < stable_until:
            return 1.0
        if step >= num_training_steps:
            return min_lr_ratio
        wave = max(0.0, 0.5 * (1 + math.cos(2 * math.pi * num_cycles * (step - stable_until) / length)))
        return min_lr_ratio + (1 - min_lr_ratio) * wave

    return LambdaLR(optimizer, _after_warmup(num_warmup_steps, decay), last_epoch)


def _after_warmup(warmup: int, then: Callable[[int], float], start: float = 0.0) -> Callable[[int], float]:
    return lambda step: start + (1 - start) * step / warmup if step < warmup else then(step)
