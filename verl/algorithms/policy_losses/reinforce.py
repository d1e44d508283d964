# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The plain policy gradient.

Shapes: B trajectories, T response tokens.
"""

from typing import Any

from torch import Tensor

from verl.algorithms.policy_losses.registry import finish, prepare, register_policy_loss


@register_policy_loss("gpg")
def compute_policy_loss_gpg(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """`-A log pi`, without a ratio (GPG, arXiv 2504.02546); no metrics."""
    x = prepare(old_log_prob, log_prob, advantages, response_mask)
    return finish(-x.advantages * x.log_prob, x.mask, loss_agg_mode, config, rollout_is_weights), {}


def compute_policy_loss_reinforce(
    rollout_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "seq-mean-token-sum",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """`-w A log pi`: the policy gradient with importance weights w (1 if not given).

    Williams 1992; off-policy form: Degris et al. 2012, arXiv 1205.4839.
    """
    x = prepare(rollout_log_prob, log_prob, advantages, response_mask)
    loss = finish(-x.advantages * x.log_prob, x.mask, loss_agg_mode, config, rollout_is_weights)
    return loss, {"actor/ppo_kl": x.ppo_kl}
