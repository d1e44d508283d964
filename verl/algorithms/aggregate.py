# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From a loss per token to one number.

Shapes: B trajectories, T response tokens.
"""

import torch
from torch import Tensor

from verl.algorithms.tensor_math import mask_total, masked_mean, masked_sum
from verl.errors import ConfigError

LOSS_AGG_MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")


def agg_loss(
    loss_mat: Tensor,
    loss_mask: Tensor,
    loss_agg_mode: str,
    dp_size: int = 1,
    batch_num_tokens: int | None = None,
    global_batch_size: int | None = None,
    loss_scale_factor: int | None = None,
) -> Tensor:
    """Aggregate `loss_mat` [B, T] over `loss_mask` [B, T] to a scalar; 0 (with its graph) if all is masked.

    Parameters
    ----------
    dp_size : data-parallel ranks; cancels the mean that the gradient all-reduce takes.
    batch_num_tokens, global_batch_size : tokens and sequences of the whole mini-batch on all ranks. With them the
        losses of the micro-batches add up to the loss of the mini-batch, however it was split; without them this
        matrix is the whole.
    loss_scale_factor : divisor of `seq-mean-token-sum-norm`; T if not given (Dr. GRPO, arXiv 2503.20783).
    """
    if loss_agg_mode not in LOSS_AGG_MODES:
        raise ConfigError(
            "unknown loss_agg_mode", where="actor.loss_agg_mode", got=loss_agg_mode, expected=" | ".join(LOSS_AGG_MODES)
        )
    if loss_agg_mode == "token-sum":
        return masked_sum(loss_mat, loss_mask) * dp_size
    if loss_agg_mode == "token-mean":
        count = mask_total(loss_mask, loss_mat.dtype) if batch_num_tokens is None else batch_num_tokens
        return masked_sum(loss_mat, loss_mask) / _at_least_one(count) * dp_size
    per_sequence = masked_mean if loss_agg_mode == "seq-mean-token-mean" else masked_sum
    loss_B = per_sequence(loss_mat, loss_mask, -1)
    count = (loss_mask.sum(-1) > 0).sum() if global_batch_size is None else global_batch_size
    loss = loss_B.sum() / _at_least_one(count) * dp_size
    if loss_agg_mode == "seq-mean-token-sum-norm":
        loss = loss / (loss_mask.shape[-1] if loss_scale_factor is None else loss_scale_factor)
    return loss


def _at_least_one(count: int | Tensor) -> int | Tensor:
    if isinstance(count, Tensor):
        return torch.where(count == 0, torch.ones_like(count), count)
    return count or 1
