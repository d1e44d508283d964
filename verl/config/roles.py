# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which roles a configuration asks for; reads typed configurations and DictConfigs alike."""

from typing import Any

CRITIC_ESTIMATORS = ("gae",)


def need_reference_policy(config: Any) -> bool:
    """A KL in the reward or in the loss needs its anchor."""
    return bool(config.algorithm.use_kl_in_reward or config.actor_rollout_ref.actor.use_kl_loss)


def need_critic(config: Any) -> bool:
    """`critic.enable` where it is set, else whether the advantage estimator needs values."""
    enable = config.critic.enable
    if enable is not None:
        return bool(enable)
    return config.algorithm.adv_estimator in CRITIC_ESTIMATORS


def need_reward_model(config: Any) -> bool:
    """A model scores the trajectories."""
    return bool(config.reward.reward_model.enable)


def need_teacher_policy(config: Any) -> bool:
    """On-policy distillation; left out, so a typed configuration always says no."""
    return bool(config.get("distillation", {}).get("enabled", False))
