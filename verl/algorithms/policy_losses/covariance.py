# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Keep entropy by taming the tokens whose log-probability and advantage vary together: Clip-Cov and KL-Cov.

Shapes: B trajectories, T response tokens. "The Entropy Mechanism of Reinforcement Learning", arXiv 2505.22617:
`cov_t = (A_t - mean A) (log pi_t - mean log pi)` over the tokens of the micro-batch.
"""

from typing import Any

import torch
from torch import Tensor

from verl.algorithms.policy_losses.registry import Inputs, clip_range, finish, prepare, register_policy_loss, share
from verl.algorithms.settings import setting
from verl.algorithms.tensor_math import masked_mean


@register_policy_loss("clip_cov")
def compute_policy_loss_clip_cov(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """PPO's clip with a random few of the tokens of high covariance left out of the gradient.

    At most `clip_cov_ratio` of the tokens (one at least), drawn among those not clipped whose covariance lies between
    `clip_cov_lb` and `clip_cov_ub`.
    """
    low, high = clip_range(config)
    x = prepare(old_log_prob, log_prob, advantages, response_mask)
    free = -x.advantages * x.ratio
    clipped = -x.advantages * x.ratio.clamp(1.0 - low, 1.0 + high)
    cov = _covariance(x)
    candidate = x.mask.bool() & (clipped <= free)
    candidate &= cov > setting(config, "policy_loss.clip_cov_lb", 1.0)
    candidate &= cov < setting(config, "policy_loss.clip_cov_ub", 5.0)
    limit = max(int(setting(config, "policy_loss.clip_cov_ratio", 0.0002) * x.mask.sum().item()), 1)
    dropped = _random_subset(candidate, limit)
    loss_BT = torch.where(dropped, 0.0, torch.maximum(free, clipped))
    metrics = {"actor/pg_clipfrac": share(dropped, x.mask), "actor/ppo_kl": x.ppo_kl}
    return finish(loss_BT, x.mask, loss_agg_mode, config, rollout_is_weights), metrics


@register_policy_loss("kl_cov")
def compute_policy_loss_kl_cov(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """The unclipped surrogate, plus `ppo_kl_coef |log r|` on the tokens of highest covariance.

    `kl_cov_ratio` of the tokens, one at least (none for 0). `actor/ppo_kl` is the mean of `|log r|` here.
    """
    x = prepare(old_log_prob, log_prob, advantages, response_mask)
    keep = x.mask.bool()
    number = int(keep.sum().item())
    share_penalized = setting(config, "policy_loss.kl_cov_ratio", 0.0002)
    penalized = torch.zeros_like(keep)
    if number and share_penalized > 0:
        count = max(1, int(number * share_penalized))
        highest = torch.where(keep, _covariance(x), -torch.inf).flatten().topk(min(count, number)).indices
        penalized.view(-1)[highest] = True
    distance = x.log_ratio.abs()
    penalty = setting(config, "policy_loss.ppo_kl_coef", 0.1) * distance
    loss_BT = -x.advantages * x.ratio + torch.where(penalized, penalty, 0.0)
    metrics = {"actor/ppo_kl": masked_mean(distance.detach(), x.mask).item()}
    return finish(loss_BT, x.mask, loss_agg_mode, config, rollout_is_weights), metrics


def _covariance(x: Inputs) -> Tensor:
    log_prob = x.log_prob.detach()
    return (x.advantages - masked_mean(x.advantages, x.mask)) * (log_prob - masked_mean(log_prob, x.mask))


def _random_subset(candidate: Tensor, limit: int) -> Tensor:
    """At most `limit` of the candidates, all equally likely."""
    places = candidate.flatten().nonzero().squeeze(-1)
    chosen = places[torch.randperm(len(places), device=places.device)[:limit]]
    subset = torch.zeros_like(candidate)
    subset.view(-1)[chosen] = True
    return subset
