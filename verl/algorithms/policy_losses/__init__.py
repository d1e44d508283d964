# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policy losses by name; importing this package registers the built-in ones."""

from verl.algorithms.policy_losses import bypass, covariance, ppo, reinforce, sequence, soft, trust_region
from verl.algorithms.policy_losses.registry import POLICY_LOSS_REGISTRY, get_policy_loss_fn, register_policy_loss

__all__ = [
    "POLICY_LOSS_REGISTRY",
    "bypass",
    "covariance",
    "get_policy_loss_fn",
    "ppo",
    "register_policy_loss",
    "reinforce",
    "sequence",
    "soft",
    "trust_region",
]
