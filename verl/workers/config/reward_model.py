# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The module that `reward.reward_manager._target_` names."""

from verl.config.reward import RewardManagerConfig, RewardModelConfig

__all__ = ["RewardManagerConfig", "RewardModelConfig"]
