# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Importance weights of rollout data: truncated (TIS) or masked (IcePop), for each token or each sequence.

Shapes: B trajectories, T response tokens. Truncation: Espeholt et al. 2018, arXiv 1802.01561; masking outside a band:
IcePop, arXiv 2510.18855.
"""

import math

import torch
from torch import Tensor

from verl.algorithms.rollout_correction.spec import SAFETY_BOUND, ImportanceSpec, parse_importance
from verl.algorithms.rollout_correction.statistics import effective_sample_size, fraction, summarize
from verl.algorithms.tensor_math import masked_mean, zero_outside


def compute_rollout_correction_weights(
    log_ratio: Tensor,
    response_mask: Tensor,
    rollout_is: str = "token",
    rollout_is_threshold: str | float = 2.0,
    rollout_is_batch_normalize: bool = False,
) -> tuple[Tensor, dict[str, float]]:
    """Weights [B, T] (no gradient, zeros outside the mask) and their metrics, from `log(training / rollout)` [B, T]."""
    return importance_weights(
        log_ratio, response_mask, parse_importance(rollout_is, rollout_is_threshold, rollout_is_batch_normalize)
    )


@torch.no_grad()
def importance_weights(log_ratio_BT: Tensor, mask_BT: Tensor, spec: ImportanceSpec) -> tuple[Tensor, dict[str, float]]:
    """The weights that `spec` asks for; metrics describe them before batch normalisation."""
    log_weight_BT = zero_outside(mask_BT, log_ratio_BT)
    log_for_metrics = log_weight_BT
    if spec.level == "sequence":
        # The product of the token ratios is the ratio of the whole response; every token carries it.
        log_for_metrics = log_weight_BT.sum(-1)
        log_weight_BT = log_for_metrics.unsqueeze(-1).expand_as(log_weight_BT)
    raw_BT = zero_outside(mask_BT, log_weight_BT.clamp(-SAFETY_BOUND, SAFETY_BOUND).exp())
    if spec.lower is None:
        weights_BT = raw_BT.clamp(max=spec.upper)
    else:
        weights_BT = torch.where((raw_BT >= spec.lower) & (raw_BT <= spec.upper), raw_BT, 0.0)
    metrics = compute_is_metrics(
        weights_BT, raw_BT, log_for_metrics, mask_BT, spec.level, spec.upper, rollout_is_threshold_lower=spec.lower
    )
    if spec.lower is not None:
        metrics["rollout_is_oob_ratio"] = fraction((raw_BT < spec.lower) | (raw_BT > spec.upper), mask_BT)
    if spec.batch_normalize:
        weights_BT, metrics["rollout_is_batch_norm_factor"] = _normalize(weights_BT, mask_BT, spec.level)
    return weights_BT, metrics


def _normalize(weights_BT: Tensor, mask_BT: Tensor, level: str) -> tuple[Tensor, float]:
    """Divide by the mean weight over tokens, or over sequences; a batch without weight stays as it is."""
    if level == "sequence":
        counted_B = mask_BT.sum(-1) > 0
        mean = masked_mean(masked_mean(weights_BT, mask_BT, -1), counted_B)
    else:
        mean = masked_mean(weights_BT, mask_BT)
    factor = mean.item()
    return (weights_BT / mean, factor) if factor > 1e-8 else (weights_BT, 1.0)


@torch.no_grad()
def compute_is_metrics(
    rollout_is_weights: Tensor,
    raw_rollout_is_weights: Tensor,
    log_ratio_for_metrics: Tensor,
    response_mask: Tensor,
    rollout_is: str,
    rollout_is_threshold: float,
    rollout_is_threshold_lower: float | None = None,
) -> dict[str, float]:
    """Metrics of importance weights.

    Means, deviations and the effective sample size describe the weights that are used; extremes and the shares above
    and below the thresholds describe the raw ratios (cut weights never exceed their own threshold).
    `log_ratio_for_metrics` is [B, T], or [B] sums for `rollout_is="sequence"`; the lower threshold is the reciprocal
    of the upper if not given.
    """
    upper = rollout_is_threshold
    lower = 1.0 / upper if rollout_is_threshold_lower is None else rollout_is_threshold_lower
    counted_B = response_mask.sum(-1) > 0
    unit_mask = counted_B if rollout_is == "sequence" else response_mask
    extremes = summarize(log_ratio_for_metrics, unit_mask)
    used = summarize(rollout_is_weights, response_mask)
    seq_used_B = masked_mean(rollout_is_weights, response_mask, -1)
    seq_raw_B = masked_mean(raw_rollout_is_weights, response_mask, -1)
    seq = summarize(seq_used_B, counted_B)
    any_left = bool(counted_B.any())
    log_lower = math.log(lower) if lower > 0 else -math.inf
    return {
        "rollout_is_mean": used.mean,
        "rollout_is_max": _exp(extremes.max) if any_left else 0.0,
        "rollout_is_min": _exp(extremes.min) if any_left else 0.0,
        "rollout_is_std": used.std,
        "rollout_is_eff_sample_size": effective_sample_size(rollout_is_weights, response_mask),
        "rollout_is_ratio_fraction_high": fraction(log_ratio_for_metrics > math.log(upper), unit_mask),
        "rollout_is_ratio_fraction_low": fraction(log_ratio_for_metrics < log_lower, unit_mask),
        "rollout_is_seq_mean": seq.mean,
        "rollout_is_seq_std": seq.std,
        "rollout_is_seq_max": seq.max,
        "rollout_is_seq_min": seq.min,
        "rollout_is_seq_max_deviation": summarize((seq_used_B - 1).abs(), counted_B).max,
        "rollout_is_seq_fraction_high": fraction(seq_raw_B > upper, counted_B),
        "rollout_is_seq_fraction_low": fraction(seq_raw_B < lower, counted_B),
    }


def _exp(log_value: float) -> float:
    return math.exp(min(max(log_value, -SAFETY_BOUND), SAFETY_BOUND))
