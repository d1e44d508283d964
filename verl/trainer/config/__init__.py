# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""YAML configurations, read by Hydra as a package; and the old home of three typed ones."""

from verl.config.algorithm import AlgoConfig, FilterGroupsConfig, KLControlConfig
from verl.config.checkpoint import CheckpointConfig
from verl.config.rollout_correction import RolloutCorrectionConfig

__all__ = [
    "AlgoConfig",
    "CheckpointConfig",
    "FilterGroupsConfig",
    "KLControlConfig",
    "RolloutCorrectionConfig",
]
