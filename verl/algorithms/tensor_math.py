# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Masked arithmetic. What lies outside a mask is never read: NaN and infinity there change neither value nor gradient.

Shapes: B trajectories, T response tokens.
"""

import torch
from torch import Tensor

WHITEN_EPSILON = 1e-8


def zero_outside(mask: Tensor, values: Tensor) -> Tensor:
    """`values` with exact zeros where the mask is zero; no gradient flows to those places."""
    # Not a product: 0 * NaN is NaN, in the value and in the gradient.
    return torch.where(mask.bool(), values, torch.zeros((), dtype=values.dtype, device=values.device))


def masked_sum(values: Tensor, mask: Tensor, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Sum of `values` weighted by `mask`, over all elements or along `axis`."""
    kept = zero_outside(mask, values)
    if mask.dtype != torch.bool:
        kept = kept * mask
    return kept.sum() if axis is None else kept.sum(dim=axis)


def masked_mean(values: Tensor, mask: Tensor, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Mean of `values` weighted by `mask`; 0 where the mask is all zero."""
    return divide(masked_sum(values, mask, axis), mask_total(mask, values.dtype, axis))


def masked_var(values: Tensor, mask: Tensor, unbiased: bool = True) -> Tensor:
    """Variance over the mask, with Bessel's correction if `unbiased`; 0 where fewer than two elements are left."""
    kept = zero_outside(mask, values)
    variance = masked_mean((kept - masked_mean(kept, mask)) ** 2, mask)
    if not unbiased:
        return variance
    total = mask_total(mask, values.dtype)
    return torch.where(total > 1, variance * total / (total - 1).clamp(min=1e-6), torch.zeros_like(variance))


def masked_whiten(values: Tensor, mask: Tensor, shift_mean: bool = True) -> Tensor:
    """Zero mean (unless `shift_mean` is false) and unit variance over the mask, zeros outside.

    With fewer than two elements there is no variance: the values are returned as they are, masked.
    """
    kept = zero_outside(mask, values)
    if mask_total(mask, values.dtype) < 2:
        return kept
    mean = masked_mean(kept, mask)
    whitened = (kept - mean) * torch.rsqrt(masked_var(kept, mask) + WHITEN_EPSILON)
    return zero_outside(mask, whitened if shift_mean else whitened + mean)


def mask_total(mask: Tensor, dtype: torch.dtype, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Sum of the mask in a floating dtype wide enough to count tokens (bf16 cannot count past 256)."""
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    return mask.sum(dtype=wide) if axis is None else mask.sum(dim=axis, dtype=wide)


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Quotient that is 0 where the denominator is 0: a mean over nothing adds nothing."""
    return numerator / torch.where(denominator == 0, torch.ones_like(denominator), denominator)


def clip_by_value(x: Tensor, tensor_min: Tensor, tensor_max: Tensor) -> Tensor:
    """Clamp with tensors as bounds; the upper bound is applied last."""
    return torch.minimum(torch.maximum(x, tensor_min), tensor_max)


def compute_grad_norm(model: torch.nn.Module) -> float:
    """L2 norm of all gradients of a model, 0 where it has none."""
    squares = [
        parameter.grad.detach().double().square().sum()
        for parameter in model.parameters()
        if parameter.grad is not None
    ]
    return float(sum(squares)) ** 0.5


# Two forms of each recursion along the tokens. On a CPU one token of all trajectories at a time is the fastest: every
# number is read once. A device that launches a kernel for each operation wants few large ones: sweeps that double the
# reach of every position (Hillis and Steele 1986), log2(T) of them. There sums are of pairs, so rounding is no worse.


@torch.no_grad()
def discounted_suffix_sum(values_BT: Tensor, mask_BT: Tensor, discount: float) -> Tensor:
    """`y_t = x_t + discount * y_next` over the masked positions of each row; zeros outside.

    Positions outside the mask (padding, tool observations) are stepped over: they add nothing and do not discount.
    """
    x_TB = zero_outside(mask_BT, values_BT).t().contiguous()
    decay_TB = torch.ones_like(x_TB).masked_fill_(mask_BT.t().bool(), discount)
    scan = _scan_by_token if x_TB.device.type == "cpu" else _scan_by_doubling
    return zero_outside(mask_BT, scan(x_TB, decay_TB).t())


@torch.no_grad()
def next_valid(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """For each position the value at the next masked-in position to the right; 0 where there is none."""
    following = _next_by_token if values_BT.device.type == "cpu" else _next_by_doubling
    return following(values_BT, mask_BT)


def _scan_by_token(x_TB: Tensor, decay_TB: Tensor) -> Tensor:
    """`y_t = x_t + decay_t * y_{t+1}`, written over `x_TB`."""
    x, decay = x_TB.unbind(), decay_TB.unbind()
    for t in reversed(range(len(x) - 1)):
        x[t].addcmul_(decay[t], x[t + 1])
    return x_TB


def _scan_by_doubling(x_TB: Tensor, decay_TB: Tensor) -> Tensor:
    """The same; overwrites both arguments."""
    reach = 1
    while reach < len(x_TB):
        # Products in memory of their own: what a sweep reads are the numbers of the sweep before.
        x_TB[:-reach] += decay_TB[:-reach] * x_TB[reach:]
        decay_TB[:-reach] = decay_TB[:-reach] * decay_TB[reach:]
        reach *= 2
    return x_TB


def _next_by_token(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    following_TB = torch.zeros_like(values_BT.t(), memory_format=torch.contiguous_format)
    values, keep = values_BT.t().contiguous().unbind(), mask_BT.t().bool().contiguous().unbind()
    following = following_TB.unbind()
    for t in reversed(range(len(following) - 1)):
        torch.where(keep[t + 1], values[t + 1], following[t + 1], out=following[t])
    return following_TB.t()


def _next_by_doubling(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """What the position to the right shows: its own value where it counts, else what lies to the right of it."""
    shown_TB = torch.zeros_like(values_BT.t(), memory_format=torch.contiguous_format)
    passes_TB = torch.zeros_like(shown_TB)
    shown_TB[:-1] = zero_outside(mask_BT, values_BT).t()[1:]
    passes_TB[:-1] = (~mask_BT.bool()).t()[1:]
    return _scan_by_doubling(shown_TB, passes_TB).t()
