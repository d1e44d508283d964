# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""DPPO: drop the tokens that have left a trust region on the divergence itself, not on the ratio.

Shapes: B trajectories, T response tokens. arXiv 2602.04879: a ratio bound is far too tight for rare tokens and far too
wide for likely ones. Divergences are of the two-way distribution (this token, any other).
"""

from typing import Any

import torch
from torch import Tensor

from verl.algorithms.policy_losses.registry import Inputs, clip_range, finish, prepare, register_policy_loss, share
from verl.algorithms.settings import setting


@register_policy_loss("dppo_tv")
def compute_policy_loss_dppo_tv(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """The trust region is `|pi - mu| <= delta` (total variation); delta is the clip range, low and high."""
    x = prepare(old_log_prob, log_prob, advantages, response_mask)
    old, new = _probabilities(x)
    return _masked_surrogate(x, (new - old).abs(), loss_agg_mode, config, rollout_is_weights)


@register_policy_loss("dppo_kl")
def compute_policy_loss_dppo_kl(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """The trust region is `KL(mu || pi) <= delta`, `mu log(mu/pi) + (1-mu) log((1-mu)/(1-pi))`."""
    x = prepare(old_log_prob, log_prob, advantages, response_mask)
    old, new = _probabilities(x)
    # Not 0 where the old policy was certain (0 log 0 is NaN), not below where rounding gives the new one exp(1e-7).
    rest_old, rest_new = (1 - old).clamp(min=1e-10), (1 - new).clamp(min=0)
    divergence = -old * x.log_ratio.detach() + rest_old * (rest_old / rest_new).log()
    return _masked_surrogate(x, divergence, loss_agg_mode, config, rollout_is_weights)


def _probabilities(x: Inputs) -> tuple[Tensor, Tensor]:
    return x.old_log_prob.exp(), x.log_prob.detach().exp()


def _masked_surrogate(
    x: Inputs, divergence: Tensor, loss_agg_mode: str, config: Any, rollout_is_weights: Tensor | None
) -> tuple[Tensor, dict[str, Any]]:
    """`-M r A`, M = 0 for tokens outside the region that the update would push further out.

    For A < 0 the loss is never more than `-c A` (`clip_ratio_c`), as in PPO's dual clip.
    """
    low, high = clip_range(config)
    outward_up = (x.advantages > 0) & (x.ratio > 1) & (divergence > high)
    outward_down = (x.advantages < 0) & (x.ratio < 1) & (divergence > low)
    dropped = outward_up | outward_down
    surrogate = -x.advantages * x.ratio
    ceiling = -x.advantages * setting(config, "clip_ratio_c", 3.0)
    capped = (x.advantages < 0) & (surrogate > ceiling)
    loss_BT = torch.where(dropped, 0.0, torch.where(capped, ceiling, surrogate))
    metrics = {
        "actor/pg_clipfrac": share(dropped, x.mask),
        "actor/ppo_kl": x.ppo_kl,
        "actor/pg_clipfrac_lower": share(capped, x.mask),
    }
    return finish(loss_BT, x.mask, loss_agg_mode, config, rollout_is_weights), metrics
