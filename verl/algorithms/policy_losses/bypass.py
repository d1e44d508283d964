# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The loss when the old policy is the rollout policy: PPO's clip or REINFORCE, with correction inside.

Shapes: B trajectories, T response tokens.
"""

from typing import Any

from torch import Tensor

from verl.algorithms.policy_losses.ppo import compute_policy_loss_vanilla
from verl.algorithms.policy_losses.registry import register_policy_loss
from verl.algorithms.policy_losses.reinforce import compute_policy_loss_reinforce
from verl.algorithms.rollout_correction.apply import correct
from verl.algorithms.rollout_correction.spec import read_correction
from verl.algorithms.settings import setting
from verl.errors import ConfigError


@register_policy_loss("bypass_mode")
def compute_policy_loss_bypass_mode(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """`old_log_prob` are the rollout's; weights and rejection come from the current policy at each update.

    `config.policy_loss.rollout_correction.loss_type`: `ppo_clip` takes only the rejection, because its ratio already
    is the importance weight; `reinforce` takes both. Weights given by the caller are refused: they would count twice.
    """
    correction = setting(config, "policy_loss.rollout_correction")
    if correction is None:
        raise ConfigError("bypass_mode needs its settings", where="actor.policy_loss.rollout_correction", got=None)
    if rollout_is_weights is not None:
        raise ConfigError("bypass_mode computes its own importance weights", remedy="do not pass rollout_is_weights")
    loss_type = setting(correction, "loss_type", "ppo_clip")
    found = correct(log_prob, old_log_prob, response_mask, read_correction(correction))
    if loss_type == "ppo_clip":
        loss, metrics = compute_policy_loss_vanilla(
            old_log_prob, log_prob, advantages, found.mask, loss_agg_mode, config=config
        )
    elif loss_type == "reinforce":
        loss, metrics = compute_policy_loss_reinforce(
            old_log_prob, log_prob, advantages, found.mask, loss_agg_mode, config, rollout_is_weights=found.weights
        )
    else:
        raise ConfigError(
            "unknown loss type",
            where="algorithm.rollout_correction.loss_type",
            got=loss_type,
            expected="ppo_clip | reinforce",
        )
    return loss, found.metrics | metrics
