# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""REINFORCE with a baseline: REINFORCE++ (plain and with group baseline), RLOO, ReMax, OPO, GPG.

Shapes: B trajectories, T response tokens. A trajectory that is rejected or could not be scored takes no part; a group
of one has no baseline.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from verl.algorithms.advantages.grpo import spread
from verl.algorithms.advantages.registry import AdvantageEstimator, register_adv_est
from verl.algorithms.groups import Groups, score_rows
from verl.algorithms.settings import setting
from verl.algorithms.tensor_math import discounted_suffix_sum, divide, masked_whiten, zero_outside


@register_adv_est(AdvantageEstimator.REINFORCE_PLUS_PLUS)
@torch.no_grad()
def compute_reinforce_plus_plus_outcome_advantage(
    token_level_rewards: Tensor, response_mask: Tensor, config: Any = None, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """Discounted return-to-go of each token, whitened over the batch; `config.gamma` is the discount.

    REINFORCE++: arXiv 2501.03262. The return runs on across tool observations, which neither pay nor discount.
    """
    mask_BT = score_rows(token_level_rewards, response_mask).mask_BT
    returns_BT = discounted_suffix_sum(token_level_rewards, mask_BT, setting(config, "gamma", 1.0))
    return masked_whiten(returns_BT, mask_BT), returns_BT


@register_adv_est(AdvantageEstimator.REINFORCE_PLUS_PLUS_BASELINE)
@torch.no_grad()
def compute_reinforce_plus_plus_baseline_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    epsilon: float = 1e-6,
    config: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """`r - mean` of the group on every token, then whitened over the batch's tokens (arXiv 2501.03262)."""
    scored = score_rows(token_level_rewards, response_mask)
    groups = Groups(index, scored.valid_B)
    centred_BT, _ = spread(scored.score_B - _mean_of_several(groups, scored.score_B), scored, token_level_rewards)
    whitened_BT = masked_whiten(centred_BT, scored.mask_BT)
    return whitened_BT, whitened_BT


@register_adv_est(AdvantageEstimator.RLOO_VECTORIZED)
@register_adv_est(AdvantageEstimator.RLOO)
@torch.no_grad()
def compute_rloo_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    epsilon: float = 1e-6,
    config: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """`r_i` minus the mean of the others, that is `n / (n - 1) (r_i - mean)` (RLOO, arXiv 2402.14740)."""
    scored = score_rows(token_level_rewards, response_mask)
    groups = Groups(index, scored.valid_B)
    several_B = groups.size_B > 1
    scale_B = torch.where(several_B, groups.size_B / (groups.size_B - 1).clamp(min=1), 1.0)
    advantage_B = scale_B * (scored.score_B - _mean_of_several(groups, scored.score_B))
    return spread(advantage_B, scored, token_level_rewards)


# The fast estimator and the plain one are one function; both names stay.
compute_rloo_vectorized_outcome_advantage = compute_rloo_outcome_advantage


@register_adv_est(AdvantageEstimator.OPO)
@torch.no_grad()
def compute_opo_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    epsilon: float = 1e-6,
    config: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """`r` minus the group's mean reward weighted by response length (OPO, arXiv 2505.23585)."""
    scored = score_rows(token_level_rewards, response_mask)
    groups = Groups(index, scored.valid_B)
    length_B = scored.mask_BT.sum(-1).double()
    baseline_B = divide(groups.sum(length_B * scored.score_B), groups.sum(length_B))
    baseline_B = torch.where(groups.size_B > 1, baseline_B, 0.0)
    return spread(scored.score_B - baseline_B, scored, token_level_rewards)


@register_adv_est(AdvantageEstimator.REMAX)
@torch.no_grad()
def compute_remax_outcome_advantage(
    token_level_rewards: Tensor, reward_baselines: Tensor, response_mask: Tensor, config: Any = None, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """Return-to-go minus the reward of the greedy answer, `reward_baselines` [B] (ReMax, arXiv 2310.10505)."""
    mask_BT = score_rows(token_level_rewards, response_mask).mask_BT
    mask_BT = mask_BT & torch.isfinite(reward_baselines).unsqueeze(-1)
    returns_BT = discounted_suffix_sum(token_level_rewards, mask_BT, 1.0)
    return zero_outside(mask_BT, returns_BT - reward_baselines.unsqueeze(-1)), returns_BT


@register_adv_est(AdvantageEstimator.GPG)
@torch.no_grad()
def compute_gpg_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    epsilon: float = 1e-6,
    f_norm: float = 1.0,
    alpha: float = 1.0,
    config: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """`alpha B / M (r - mean) / f_norm` with M the trajectories of non-zero reward (GPG, arXiv 2504.02546).

    B / M makes up for trajectories that carry no gradient. The paper counts them as groups of equal rewards; this
    counts zero rewards, as the implementation that its users compare with does.
    """
    scored = score_rows(token_level_rewards, response_mask)
    groups = Groups(index, scored.valid_B)
    rewarded = torch.count_nonzero(scored.score_B).clamp(min=1)
    scale = alpha * scored.valid_B.sum(dtype=torch.float64) / rewarded / f_norm
    return spread(scale * (scored.score_B - _mean_of_several(groups, scored.score_B)), scored, token_level_rewards)


def _mean_of_several(groups: Groups, score_B: Tensor) -> Tensor:
    """Group mean, 0 for a group of one: a score is not its own baseline."""
    return torch.where(groups.size_B > 1, groups.mean(score_B), 0.0)
