# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old home of the algorithm's typed configurations; new code imports verl.config."""

from verl.config.algorithm import AlgoConfig, FilterGroupsConfig, KLControlConfig
from verl.config.rollout_correction import RolloutCorrectionConfig

__all__ = ["AlgoConfig", "FilterGroupsConfig", "KLControlConfig", "RolloutCorrectionConfig"]
