# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Generalised advantage estimation (Schulman et al. 2015, arXiv 1506.02438).

Shapes: B trajectories, T response tokens.
"""

import torch
from torch import Tensor

from verl.algorithms.advantages.registry import AdvantageEstimator, register_adv_est
from verl.algorithms.groups import score_rows
from verl.algorithms.tensor_math import discounted_suffix_sum, masked_whiten, next_valid, zero_outside


@register_adv_est(AdvantageEstimator.GAE)
@torch.no_grad()
def compute_gae_advantage_return(
    token_level_rewards: Tensor,
    values: Tensor,
    response_mask: Tensor,
    gamma: float | Tensor,
    lam: float | Tensor,
) -> tuple[Tensor, Tensor]:
    """`A_t = delta_t + gamma lam A_next`, `delta_t = r_t + gamma V_next - V_t`; whitened. Returns are `A + V`.

    "Next" is the next policy token: tool observations are stepped over. A trajectory that could not be scored has zero
    advantage and its own values as returns, so that it teaches the critic nothing.
    """
    mask_BT = score_rows(token_level_rewards, response_mask).mask_BT
    values_BT = zero_outside(response_mask, values)
    delta_BT = token_level_rewards + gamma * next_valid(values_BT, mask_BT) - values_BT
    advantages_BT = discounted_suffix_sum(delta_BT, mask_BT, float(gamma * lam))
    return masked_whiten(advantages_BT, mask_BT), advantages_BT + values_BT
