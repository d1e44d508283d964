# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Estimators of the KL divergence per token, and controllers of its coefficient.

Estimators k1, k2, k3: J. Schulman, "Approximating KL Divergence", 2020. Shapes: B trajectories, T response tokens.
"""

from typing import Any

import torch
from torch import Tensor

from verl.algorithms.settings import setting
from verl.errors import ConfigError, UnsupportedError

# exp(20) is 5e8: beyond it one token would decide the batch. The value of k3 is bounded once more.
LOG_RATIO_BOUND = 20.0
K3_VALUE_BOUND = 10.0


def kl_penalty(logprob: Tensor, ref_logprob: Tensor, kl_penalty: str) -> Tensor:
    """Estimate KL(policy || reference) at each token, same shape as the inputs.

    A name ending in `+` has the value of the estimator and the gradient of k2, which is the unbiased one
    (straight through).
    """
    value = kl_penalty_forward(logprob, ref_logprob, kl_penalty)
    if not kl_penalty.endswith("+"):
        return value
    slope = kl_penalty_forward(logprob, ref_logprob, "k2")
    return value.detach() + slope - slope.detach()


def kl_penalty_forward(logprob: Tensor, ref_logprob: Tensor, kl_penalty: str) -> Tensor:
    """The estimator's own value and gradient; a trailing `+` is ignored."""
    name = kl_penalty.removesuffix("+")
    log_ratio = logprob - ref_logprob
    if name in ("kl", "k1"):
        return log_ratio
    if name == "abs":
        return log_ratio.abs()
    if name in ("mse", "k2"):
        return 0.5 * log_ratio.square()
    if name in ("low_var_kl", "k3"):
        bounded = (-log_ratio).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
        return (torch.expm1(bounded) - bounded).clamp(-K3_VALUE_BOUND, K3_VALUE_BOUND)
    if name == "full":
        raise UnsupportedError("kl_penalty 'full' needs the logits of both models", remedy="use k1, k2, k3 or abs")
    raise ConfigError(
        "unknown KL estimator",
        got=kl_penalty,
        expected="kl | k1 | abs | mse | k2 | low_var_kl | k3, each with or without '+'",
    )


class FixedKLController:
    """A coefficient that never changes."""

    def __init__(self, kl_coef: float) -> None:
        self.value = kl_coef

    def update(self, current_kl: float, n_steps: int) -> None:
        """Nothing to do."""


class AdaptiveKLController:
    """Drives the KL towards a target by proportional control (Ziegler et al. 2019, arXiv 1909.08593, section 2.2)."""

    def __init__(self, init_kl_coef: float, target_kl: float, horizon: float) -> None:
        self.value = init_kl_coef
        self.target = target_kl
        self.horizon = horizon

    def update(self, current_kl: float, n_steps: int) -> None:
        """Scale the coefficient by at most 20 % a horizon; `n_steps` counts samples."""
        error = min(max(current_kl / self.target - 1.0, -0.2), 0.2)
        self.value *= 1.0 + error * n_steps / self.horizon


def get_kl_controller(kl_ctrl: Any) -> FixedKLController | AdaptiveKLController:
    """The controller that `algorithm.kl_ctrl` describes."""
    kind = setting(kl_ctrl, "type")
    if kind == "fixed":
        return FixedKLController(kl_coef=setting(kl_ctrl, "kl_coef"))
    if kind == "adaptive":
        horizon = setting(kl_ctrl, "horizon", 0)
        if horizon <= 0:
            raise ConfigError("the horizon must be positive", where="algorithm.kl_ctrl.horizon", got=horizon)
        return AdaptiveKLController(setting(kl_ctrl, "kl_coef"), setting(kl_ctrl, "target_kl"), horizon)
    raise ConfigError("unknown KL controller", where="algorithm.kl_ctrl.type", got=kind, expected="fixed | adaptive")


def compute_rewards(token_level_scores: Tensor, old_log_prob: Tensor, ref_log_prob: Tensor, kl_ratio: float) -> Tensor:
    """Scores minus the k1 penalty times `kl_ratio`."""
    return token_level_scores - (old_log_prob - ref_log_prob) * kl_ratio
