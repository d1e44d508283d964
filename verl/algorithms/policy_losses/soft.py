# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Losses that bound the ratio without stopping the gradient: SAPO and CISPO.

Shapes: B trajectories, T response tokens.
"""

from typing import Any

import torch
from torch import Tensor

from verl.algorithms.policy_losses.registry import clip_range, finish, prepare, register_policy_loss, share
from verl.algorithms.settings import setting


@register_policy_loss("sapo")
def compute_policy_loss_sapo(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "seq-mean-token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """`-A (4 / tau) sigmoid(tau (r - 1))`, with `tau_pos` for A > 0 and `tau_neg` otherwise.

    SAPO: arXiv 2511.20347. The objective is a mean over responses of means over tokens, so
    `loss_agg_mode` is always `seq-mean-token-mean`.
    """
    x = prepare(old_log_prob, log_prob, advantages, response_mask)
    tau = torch.full_like(x.advantages, setting(config, "tau_neg", 1.05))
    tau = tau.masked_fill(x.advantages > 0, setting(config, "tau_pos", 1.0))
    gate = torch.sigmoid(tau * (x.ratio - 1.0)) * 4.0 / tau
    metrics = {"actor/pg_clipfrac": 0.0, "actor/ppo_kl": x.ppo_kl, "actor/pg_clipfrac_lower": 0.0}
    return finish(-x.advantages * gate, x.mask, "seq-mean-token-mean", config, rollout_is_weights), metrics


@register_policy_loss("cispo")
def compute_policy_loss_cispo(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """`-sg[clip(r, 1 - low, 1 + high)] A log pi`: a clipped weight, and a gradient for every token.

    CISPO: MiniMax-M1, arXiv 2506.13585.
    """
    low, high = clip_range(config)
    x = prepare(old_log_prob, log_prob, advantages, response_mask)
    weight = x.ratio.detach().clamp(1.0 - low, 1.0 + high)
    metrics = {
        "actor/pg_clipfrac": share(x.ratio.detach() != weight, x.mask),
        "actor/ppo_kl": x.ppo_kl,
        "actor/pg_clipfrac_lower": 0.0,
    }
    loss_BT = -weight * x.advantages * x.log_prob
    return finish(loss_BT, x.mask, loss_agg_mode, config, rollout_is_weights), metrics
