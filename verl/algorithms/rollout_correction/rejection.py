# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rejection sampling of rollout data: drop tokens or whole trajectories where the policies differ too much.

Shapes: B trajectories, T response tokens. A hard trust region on the KL estimators k1, k2, k3 of each token, or on
their sum, mean or largest value over a response.
"""

import torch
from torch import Tensor

from verl.algorithms.rollout_correction.spec import SAFETY_BOUND, RejectionRule, parse_rejection
from verl.algorithms.rollout_correction.statistics import fraction, summarize
from verl.algorithms.tensor_math import masked_mean, masked_sum, zero_outside


def compute_rollout_rejection_mask(
    log_ratio: Tensor,
    response_mask: Tensor,
    rollout_rs: str = "token_k1",
    rollout_rs_threshold: str | float | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """What is left of `response_mask` [B, T] after all rules, and metrics, from `log(training / rollout)` [B, T]."""
    return rejection_mask(log_ratio, response_mask, parse_rejection(rollout_rs, rollout_rs_threshold))


@torch.no_grad()
def rejection_mask(
    log_ratio_BT: Tensor, mask_BT: Tensor, rules: tuple[RejectionRule, ...]
) -> tuple[Tensor, dict[str, float]]:
    """Every rule must accept; each is measured against the whole mask, so that their order does not matter."""
    counted_B = mask_BT.sum(-1) > 0
    kept_BT = mask_BT.bool()
    metrics: dict[str, float] = {}
    for rule in rules:
        statistic_BT = zero_outside(mask_BT, _estimate(log_ratio_BT, rule.estimator))
        per_sequence_B = _reduce(statistic_BT, mask_BT, rule.reduction)
        level = "token" if rule.reduction == "token" else "sequence"
        tested = statistic_BT if level == "token" else per_sequence_B.unsqueeze(-1)
        accepted_BT = (tested <= rule.upper).expand_as(kept_BT)
        if rule.lower is not None:
            accepted_BT = accepted_BT & (tested >= rule.lower)
        metrics |= compute_rs_metrics(
            rule.option,
            statistic_BT,
            mask_BT,
            counted_B,
            level=level,
            per_sequence_values=per_sequence_B,
            rollout_rs_threshold=rule.upper,
            rollout_rs_threshold_lower=rule.lower or 0.0,
            apply_lower_threshold=rule.lower is not None,
        )
        metrics |= _rejected_share(f"rollout_rs_{rule.option}", ~accepted_BT, mask_BT, counted_B)
        kept_BT = kept_BT & accepted_BT
    metrics |= _rejected_share("rollout_rs", ~kept_BT, mask_BT, counted_B)
    return zero_outside(kept_BT, mask_BT), metrics


def _estimate(log_ratio_BT: Tensor, estimator: int) -> Tensor:
    log_ratio = log_ratio_BT.clamp(-SAFETY_BOUND, SAFETY_BOUND)
    if estimator == 1:
        return -log_ratio
    return 0.5 * log_ratio.square() if estimator == 2 else torch.expm1(log_ratio) - log_ratio


def _reduce(statistic_BT: Tensor, mask_BT: Tensor, reduction: str) -> Tensor:
    if reduction == "sum":
        return masked_sum(statistic_BT, mask_BT, -1)
    if reduction == "max":
        # k2 and k3 are never negative, so the zeros outside the mask do not win.
        return statistic_BT.amax(-1)
    return masked_mean(statistic_BT, mask_BT, -1)


def _rejected_share(name: str, rejected_BT: Tensor, mask_BT: Tensor, counted_B: Tensor) -> dict[str, float]:
    touched_B = (rejected_BT & mask_BT.bool()).any(-1)
    return {
        f"{name}_masked_fraction": fraction(rejected_BT, mask_BT),
        f"{name}_seq_masked_fraction": fraction(touched_B, counted_B),
    }


@torch.no_grad()
def compute_rs_metrics(
    option_name: str,
    rs_statistic: Tensor,
    response_mask: Tensor,
    seq_valid_mask: Tensor,
    *,
    level: str,
    per_sequence_values: Tensor | None,
    rollout_rs_threshold: float,
    rollout_rs_threshold_lower: float,
    apply_lower_threshold: bool,
) -> dict[str, float]:
    """Metrics of one rule's statistic; `level` says whether tokens or sequences are counted."""
    values_B = masked_mean(rs_statistic, response_mask, -1) if per_sequence_values is None else per_sequence_values
    unit, unit_mask = (rs_statistic, response_mask) if level == "token" else (values_B, seq_valid_mask)
    upper = rollout_rs_threshold
    lower = rollout_rs_threshold_lower if apply_lower_threshold else -torch.inf
    overall, seq = summarize(unit, unit_mask), summarize(values_B, seq_valid_mask)
    name = f"rollout_rs_{option_name}_"
    return {
        name + "mean": overall.mean,
        name + "max": overall.max,
        name + "min": overall.min,
        name + "std": overall.std,
        name + "fraction_high": fraction(unit > upper, unit_mask),
        name + "fraction_low": fraction(unit < lower, unit_mask),
        name + "seq_mean": seq.mean,
        name + "seq_std": seq.std,
        name + "seq_max": seq.max,
        name + "seq_min": seq.min,
        name + "seq_max_deviation": summarize(values_B.abs(), seq_valid_mask).max,
        name + "seq_fraction_high": fraction(values_B > upper, seq_valid_mask),
        name + "seq_fraction_low": fraction(values_B < lower, seq_valid_mask),
    }
