# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Names of the advantage estimators."""

from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Any

from torch import Tensor

from verl.registry import Registry

AdvantageFn = Callable[..., tuple[Tensor, Tensor]]
"""(token_level_rewards [B, T], response_mask [B, T], ...) -> (advantages [B, T], returns [B, T])."""


class AdvantageEstimator(StrEnum):
    """Built-in values of `algorithm.adv_estimator`; registered names of your own are plain strings."""

    GAE = "gae"
    GRPO = "grpo"
    REINFORCE_PLUS_PLUS = "reinforce_plus_plus"
    REINFORCE_PLUS_PLUS_BASELINE = "reinforce_plus_plus_baseline"
    REMAX = "remax"
    RLOO = "rloo"
    OPO = "opo"
    GRPO_PASSK = "grpo_passk"
    GPG = "gpg"
    RLOO_VECTORIZED = "rloo_vectorized"
    GRPO_VECTORIZED = "grpo_vectorized"
    OPTIMAL_TOKEN_BASELINE = "optimal_token_baseline"
    TIR_OPTIMAL_TOKEN_BASELINE = "tir_optimal_token_baseline"
    GDPO = "gdpo"


ADV_ESTIMATOR_REGISTRY: Registry[AdvantageFn] = Registry("advantage estimator", "algorithm.adv_estimator")


def register_adv_est(name_or_enum: str | AdvantageEstimator) -> Callable[[AdvantageFn], AdvantageFn]:
    """Decorator: make an estimator selectable by `algorithm.adv_estimator`."""
    return ADV_ESTIMATOR_REGISTRY.register(_name(name_or_enum))


def get_adv_estimator_fn(name_or_enum: str | AdvantageEstimator) -> AdvantageFn:
    """The estimator of this name; an unknown name is answered with the known ones."""
    return ADV_ESTIMATOR_REGISTRY.get(_name(name_or_enum))


def _name(name_or_enum: Any) -> str:
    return name_or_enum.value if isinstance(name_or_enum, Enum) else name_or_enum
