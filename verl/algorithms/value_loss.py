# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The critic's clipped loss.

Shapes: B trajectories, T response tokens.
"""

from typing import Any

import torch
from torch import Tensor

from verl.algorithms.aggregate import agg_loss
from verl.algorithms.tensor_math import clip_by_value, masked_mean, zero_outside


def compute_value_loss(
    vpreds: Tensor,
    returns: Tensor,
    values: Tensor,
    response_mask: Tensor,
    cliprange_value: float,
    loss_agg_mode: str = "token-mean",
    **batch_info: Any,
) -> tuple[Tensor, Tensor]:
    """`0.5 max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2)` aggregated, and the share of clipped tokens.

    PPO's reference implementation (arXiv 1707.06347; "The 37 implementation details of PPO", detail 9).
    `batch_info` holds the counts of `agg_loss` that normalise over the whole mini-batch.
    """
    vpreds, returns, values = (zero_outside(response_mask, tensor) for tensor in (vpreds, returns, values))
    clipped = clip_by_value(vpreds, values - cliprange_value, values + cliprange_value)
    free_error, clipped_error = (vpreds - returns).square(), (clipped - returns).square()
    loss = 0.5 * agg_loss(torch.maximum(free_error, clipped_error), response_mask, loss_agg_mode, **batch_info)
    clipfrac = masked_mean((clipped_error > free_error).to(torch.float32), response_mask)
    return loss, clipfrac
