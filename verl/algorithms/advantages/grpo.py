# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Group-relative estimators: GRPO, Dr. GRPO, pass@k, GDPO.

Shapes: B trajectories, T response tokens. A trajectory that is rejected or could not be scored takes no part: the
others get what they would get if it were not in the batch, and its own advantage is zero. A group of one has mean 0
and standard deviation 1.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from verl.algorithms.advantages.registry import AdvantageEstimator, register_adv_est
from verl.algorithms.groups import Groups, Scored, score_rows
from verl.algorithms.settings import setting
from verl.algorithms.tensor_math import masked_whiten
from verl.errors import ConfigError, DataError


@register_adv_est(AdvantageEstimator.GRPO_VECTORIZED)
@register_adv_est(AdvantageEstimator.GRPO)
@torch.no_grad()
def compute_grpo_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    epsilon: float = 1e-6,
    norm_adv_by_std_in_grpo: bool = True,
    config: Any = None,
) -> tuple[Tensor, Tensor]:
    """`A = (r - mean) / (std + epsilon)` over the group, on every policy token.

    GRPO: arXiv 2402.03300, section 4.1.2. Without the division it is Dr. GRPO: arXiv 2503.20783.
    """
    scored = score_rows(token_level_rewards, response_mask)
    groups = Groups(index, scored.valid_B)
    advantage_B = normalize_in_group(scored.score_B, groups, epsilon, norm_adv_by_std_in_grpo)
    return spread(advantage_B, scored, token_level_rewards)


# The fast estimator and the plain one are one function; both names stay.
compute_grpo_vectorized_outcome_advantage = compute_grpo_outcome_advantage


def normalize_in_group(score_B: Tensor, groups: Groups, epsilon: float, divide_by_std: bool) -> Tensor:
    """The group-relative score of each trajectory [B], float64."""
    alone_B = groups.size_B <= 1
    centred_B = score_B - torch.where(alone_B, 0.0, groups.mean(score_B))
    if not divide_by_std:
        return centred_B
    return centred_B / (torch.where(alone_B, 1.0, groups.std(score_B)) + epsilon)


def spread(advantage_B: Tensor, scored: Scored, like: Tensor) -> tuple[Tensor, Tensor]:
    """One number for each trajectory onto its policy tokens, as (advantages, returns) in the dtype of `like`."""
    dtype = like.dtype if like.dtype.is_floating_point else torch.float32
    advantages_BT = torch.where(scored.mask_BT, advantage_B.to(dtype).unsqueeze(-1), 0.0)
    return advantages_BT, advantages_BT


@register_adv_est(AdvantageEstimator.GRPO_PASSK)
@torch.no_grad()
def compute_grpo_passk_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    epsilon: float = 1e-6,
    norm_adv_by_std_in_grpo: bool = True,
    config: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Only the best of a group learns, by its lead over the second: `(r_1 - r_2) / (std + epsilon)`.

    Pass@k as the objective: arXiv 2503.19595, with k = group size. A group that has lost its second member
    teaches nothing.
    """
    scored = score_rows(token_level_rewards, response_mask)
    groups = Groups(index, scored.valid_B)
    score_B, valid_B = scored.score_B, scored.valid_B
    if len(score_B) and groups.number == len(score_B):
        raise DataError("pass@k needs at least two trajectories of a prompt", remedy="set rollout.n to 2 or more")
    row_B = torch.arange(len(score_B), device=score_B.device, dtype=score_B.dtype)
    best_B = valid_B & (score_B == groups.extreme(score_B, largest=True))
    winner_B = best_B & (row_B == groups.extreme(torch.where(best_B, row_B, torch.inf), largest=False))
    second_B = groups.extreme(torch.where(winner_B, -torch.inf, score_B), largest=True)
    lead_B = torch.where(winner_B & torch.isfinite(second_B), score_B - second_B, 0.0)
    if norm_adv_by_std_in_grpo:
        lead_B = lead_B / (groups.std(score_B) + epsilon)
    return spread(lead_B, scored, token_level_rewards)


@register_adv_est(AdvantageEstimator.GDPO)
@torch.no_grad()
def compute_gdpo_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    epsilon: float = 1e-6,
    norm_adv_by_std_in_grpo: bool = True,
    config: Any = None,
    non_tensor_batch: dict[str, Any] | None = None,
    batch: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Several rewards, each normalised in its group, summed with weights, then whitened over the batch's tokens.

    GDPO: arXiv 2601.05242. `algorithm.gdpo_reward_keys` names columns of `non_tensor_batch`,
    `algorithm.gdpo_reward_weights` their weights (1 each). A trajectory without one of its rewards takes no part.
    """
    rewards_KB = gdpo_rewards(config, non_tensor_batch).to(token_level_rewards.device)
    weights = setting(config, "gdpo_reward_weights") or [1.0] * len(rewards_KB)
    if len(weights) != len(rewards_KB):
        raise ConfigError(
            "one weight for each reward",
            where="algorithm.gdpo_reward_weights",
            got=list(weights),
            expected=len(rewards_KB),
        )
    scored = score_rows(token_level_rewards, response_mask)
    valid_B = scored.valid_B & torch.isfinite(rewards_KB).all(0)
    scored = Scored(scored.score_B, valid_B, scored.mask_BT & valid_B.unsqueeze(-1))
    groups = Groups(index, valid_B)
    total_B = sum(
        weight * normalize_in_group(torch.where(valid_B, reward_B, 0.0), groups, epsilon, norm_adv_by_std_in_grpo)
        for weight, reward_B in zip(weights, rewards_KB, strict=True)
    )
    summed_BT, _ = spread(total_B, scored, token_level_rewards)
    advantages_BT = masked_whiten(summed_BT, scored.mask_BT)
    return advantages_BT, advantages_BT


def gdpo_rewards(config: Any, non_tensor_batch: dict[str, Any] | None) -> Tensor:
    """The separate rewards [K, B], float64, NaN where a trajectory lacks one."""
    keys = setting(config, "gdpo_reward_keys")
    if not keys:
        raise ConfigError(
            "adv_estimator=gdpo needs the names of its rewards",
            where="algorithm.gdpo_reward_keys",
            remedy="add +algorithm.gdpo_reward_keys=[…]",
        )
    columns = non_tensor_batch or {}
    missing = [key for key in keys if key not in columns]
    if missing:
        raise DataError(
            f"rewards named there are not in the batch: {missing}",
            where="algorithm.gdpo_reward_keys",
            got=list(keys),
            expected=f"among {sorted(columns)}",
            remedy="return them from compute_score",
        )
    return torch.tensor(
        [[np.nan if value is None else float(value) for value in columns[key]] for key in keys], dtype=torch.float64
    )
