# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The baseline of each token that minimises the variance of the policy gradient.

Shapes: B trajectories, N groups, T response tokens. With `G_t` the return-to-go and `W_t` the summed squared norm of
the score function up to t, `B_t = E[G_t W_t] / E[W_t]` over the group: the optimal baseline of Greensmith et al. 2004
(JMLR 5), one for each token. The norm is that of the gradient in the logits: `1 - 2 pi_t + sum_v pi_v^2`.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from verl.algorithms.advantages.registry import AdvantageEstimator, register_adv_est
from verl.algorithms.groups import Groups, score_rows
from verl.algorithms.tensor_math import discounted_suffix_sum, zero_outside


@register_adv_est(AdvantageEstimator.OPTIMAL_TOKEN_BASELINE)
@torch.no_grad()
def compute_optimal_token_baseline_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    old_log_probs: Tensor,
    sum_pi_squared: Tensor,
    rollout_is_weights: Tensor | None = None,
    handle_zero_tail: bool = True,
    epsilon: float = 1e-8,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Return-to-go minus the optimal baseline at the same position of the response.

    `handle_zero_tail`: where only the longest trajectory of a group goes on, its own return would be its baseline and
    the advantage zero; the baseline there is 0 instead. Importance weights enter `W` squared.
    """
    scored = score_rows(token_level_rewards, response_mask)
    mask_BT, groups = scored.mask_BT, Groups(index, scored.valid_B)
    returns_BT = discounted_suffix_sum(token_level_rewards, mask_BT, 1.0)
    energy_BT = _energy(old_log_probs, sum_pi_squared, rollout_is_weights, mask_BT)
    baseline_BT = _baseline(returns_BT, energy_BT, mask_BT, groups, handle_zero_tail, epsilon)
    return zero_outside(mask_BT, returns_BT - baseline_BT), returns_BT


@register_adv_est(AdvantageEstimator.TIR_OPTIMAL_TOKEN_BASELINE)
@torch.no_grad()
def compute_multi_turn_optimal_token_baseline_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    old_log_probs: Tensor,
    sum_pi_squared: Tensor,
    rollout_is_weights: Tensor | None = None,
    handle_zero_tail: bool = True,
    epsilon: float = 1e-8,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """The same with tokens compared by their number among the policy's tokens, tool observations left out."""
    scored = score_rows(token_level_rewards, response_mask)
    # Stable sort: policy tokens to the front, in their order.
    front_BT = torch.argsort(~scored.mask_BT, dim=-1, stable=True)

    def packed(values_BT: Tensor) -> Tensor:
        return values_BT.gather(-1, front_BT)

    advantages_BT, returns_BT = compute_optimal_token_baseline_advantage(
        packed(token_level_rewards),
        packed(scored.mask_BT),
        index,
        packed(old_log_probs),
        packed(sum_pi_squared),
        None if rollout_is_weights is None else packed(rollout_is_weights),
        handle_zero_tail,
        epsilon,
    )
    return _unpacked(advantages_BT, front_BT), _unpacked(returns_BT, front_BT)


def _unpacked(values_BT: Tensor, front_BT: Tensor) -> Tensor:
    return torch.zeros_like(values_BT).scatter_(-1, front_BT, values_BT)


def _energy(old_log_probs: Tensor, sum_pi_squared: Tensor, weights: Tensor | None, mask_BT: Tensor) -> Tensor:
    """W: squared norm of the score function, summed up to each token [B, T]."""
    norm_BT = 1 - 2 * old_log_probs.exp() + sum_pi_squared
    if weights is not None:
        norm_BT = norm_BT * weights.square()
    return zero_outside(mask_BT, norm_BT).cumsum(-1)


def _baseline(
    returns_BT: Tensor, energy_BT: Tensor, mask_BT: Tensor, groups: Groups, handle_zero_tail: bool, epsilon: float
) -> Tensor:
    energy_BT = zero_outside(mask_BT, energy_BT)
    baseline_BT = groups.sum(returns_BT * energy_BT) / (groups.sum(energy_BT) + epsilon)
    if handle_zero_tail:
        # Alone at a position that no sibling reaches any more: the siblings' last tokens lie before it.
        length = mask_BT.shape[-1]
        end_B = length - mask_BT.flip(-1).int().argmax(-1).double()
        longest_B = end_B == groups.extreme(end_B, largest=True)
        unique_B = longest_B & (groups.sum(longest_B.double()) == 1)
        others_end_B = groups.extreme(torch.where(unique_B, 0.0, end_B), largest=True)
        tail_BT = torch.arange(length, device=mask_BT.device) >= others_end_B.unsqueeze(-1)
        baseline_BT = torch.where(unique_B.unsqueeze(-1) & tail_BT, 0.0, baseline_BT)
    return torch.where((groups.size_B > 1).unsqueeze(-1), baseline_BT, 0.0)
