# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The module that `reward.reward_manager.module._target_` names."""

from verl.config.checkpoint import CheckpointConfig
from verl.config.reward import ModuleConfig

__all__ = ["CheckpointConfig", "ModuleConfig"]
