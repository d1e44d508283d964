# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Advantage estimators by name; importing this package registers the built-in ones."""

from verl.algorithms.advantages import gae, grpo, optimal_baseline, reinforce
from verl.algorithms.advantages.registry import (
    ADV_ESTIMATOR_REGISTRY,
    AdvantageEstimator,
    get_adv_estimator_fn,
    register_adv_est,
)

__all__ = [
    "ADV_ESTIMATOR_REGISTRY",
    "AdvantageEstimator",
    "gae",
    "get_adv_estimator_fn",
    "grpo",
    "optimal_baseline",
    "register_adv_est",
    "reinforce",
]
