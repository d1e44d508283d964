# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The clipped surrogate of PPO, with dual clip and clip-higher.

Shapes: B trajectories, T response tokens.
"""

from typing import Any

import torch
from torch import Tensor

from verl.algorithms.aggregate import agg_loss
from verl.algorithms.logits import entropy_from_logits
from verl.algorithms.policy_losses.registry import clip_range, finish, prepare, register_policy_loss, share
from verl.algorithms.settings import setting
from verl.errors import ConfigError


@register_policy_loss("vanilla")
def compute_policy_loss_vanilla(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """`-min(r A, clip(r, 1 - low, 1 + high) A)`; for A < 0 never more than `-c A`.

    PPO: arXiv 1707.06347, equation 7. Dual clip (c): arXiv 1912.09729. Separate bounds (clip-higher):
    DAPO, arXiv 2503.14476, section 3.1.
    """
    clip_c = setting(config, "clip_ratio_c", 3.0)
    if clip_c <= 1.0:
        raise ConfigError("dual clip needs a bound above 1", where="actor.clip_ratio_c", got=clip_c)
    low, high = clip_range(config)
    x = prepare(old_log_prob, log_prob, advantages, response_mask)
    free = -x.advantages * x.ratio
    clipped = -x.advantages * x.ratio.clamp(1.0 - low, 1.0 + high)
    pessimist = torch.maximum(free, clipped)
    ceiling = -x.advantages * clip_c
    negative = x.advantages < 0
    loss_BT = torch.where(negative, torch.minimum(pessimist, ceiling), pessimist)
    metrics = {
        "actor/pg_clipfrac": share(clipped > free, x.mask),
        "actor/ppo_kl": x.ppo_kl,
        "actor/pg_clipfrac_lower": share((pessimist > ceiling) & negative, x.mask),
    }
    return finish(loss_BT, x.mask, loss_agg_mode, config, rollout_is_weights), metrics


def compute_policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    cliprange: float | None = None,
    cliprange_low: float | None = None,
    cliprange_high: float | None = None,
    clip_ratio_c: float = 3.0,
    loss_agg_mode: str = "token-mean",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same loss with its numbers as arguments: (loss, clip fraction, KL, lower clip fraction)."""
    config = {
        "clip_ratio": cliprange,
        "clip_ratio_low": cliprange_low,
        "clip_ratio_high": cliprange_high,
        "clip_ratio_c": clip_ratio_c,
    }
    loss, metrics = compute_policy_loss_vanilla(
        old_log_prob, log_prob, advantages, response_mask, loss_agg_mode=loss_agg_mode, config=config
    )
    names = ("actor/pg_clipfrac", "actor/ppo_kl", "actor/pg_clipfrac_lower")
    clipfrac, kl, clipfrac_lower = (torch.tensor(metrics[name], device=loss.device) for name in names)
    return loss, clipfrac, kl, clipfrac_lower


def compute_entropy_loss(logits: Tensor, response_mask: Tensor, loss_agg_mode: str = "token-mean") -> Tensor:
    """Aggregated entropy of the distributions in `logits` [B, T, V]."""
    return agg_loss(entropy_from_logits(logits), response_mask, loss_agg_mode)
