# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One ratio for a whole response: GSPO and GMPO.

Shapes: B trajectories, T response tokens.
"""

from typing import Any

import torch
from torch import Tensor

from verl.algorithms.policy_losses.registry import clip_range, finish, prepare, register_policy_loss, share
from verl.algorithms.tensor_math import masked_mean


@register_policy_loss("gspo")
def compute_policy_loss_gspo(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "seq-mean-token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """PPO's clip on `s = exp(mean_t log r_t)`, the length-normalised ratio of the response.

    GSPO: arXiv 2507.18071, in the token form `s_t = sg[s] pi_t / sg[pi_t]`. The objective is a mean over responses of
    means over tokens, so `loss_agg_mode` is always `seq-mean-token-mean`.
    """
    low, high = clip_range(config)
    x = prepare(old_log_prob, log_prob, advantages, response_mask)
    log_s_B = masked_mean(x.log_ratio, x.mask, -1).detach()
    ratio = (x.log_prob - x.log_prob.detach() + log_s_B.unsqueeze(-1)).exp()
    free = -x.advantages * ratio
    clipped = -x.advantages * ratio.clamp(1.0 - low, 1.0 + high)
    metrics = {
        "actor/pg_clipfrac": share(clipped > free, x.mask),
        "actor/ppo_kl": x.ppo_kl,
        "actor/pg_clipfrac_lower": 0.0,
    }
    loss_BT = torch.maximum(free, clipped)
    return finish(loss_BT, x.mask, "seq-mean-token-mean", config, rollout_is_weights), metrics


@register_policy_loss("geo_mean")
def compute_policy_loss_geo_mean(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """`-A exp(mean_t min(sign log r_t, sign clip(log r_t, -low, high)) sign)` for each response, then their mean.

    GMPO: arXiv 2507.20673. The clip range is in log space (the paper: 0.4). A is the mean advantage of the
    response; `loss_agg_mode` does not apply. Importance weights enter by their geometric mean.
    """
    low, high = clip_range(config)
    x = prepare(old_log_prob, log_prob, advantages, response_mask)
    clipped = x.log_ratio.clamp(-low, high)
    sign = x.advantages.sign()
    pessimist = sign * torch.minimum(sign * x.log_ratio, sign * clipped)
    ratio_B = masked_mean(pessimist, x.mask, -1).exp()
    loss_B = -masked_mean(x.advantages, x.mask, -1) * ratio_B
    if rollout_is_weights is not None:
        log_weight_BT = rollout_is_weights.detach().log()
        loss_B = loss_B * masked_mean(log_weight_BT, x.mask, -1).exp()
    outside = x.log_ratio != clipped
    metrics = {
        "actor/pg_clipfrac": share(outside & (x.advantages > 0), x.mask),
        "actor/ppo_kl": x.ppo_kl,
        "actor/pg_clipfrac_lower": share(outside & (x.advantages < 0), x.mask),
    }
    counted_B1 = (x.mask.sum(-1, keepdim=True) > 0).to(loss_B.dtype)
    return finish(loss_B.unsqueeze(-1), counted_B1, "seq-mean-token-sum", config), metrics
