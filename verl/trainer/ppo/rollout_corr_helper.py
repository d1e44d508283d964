# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Public path of rollout correction: `verl.algorithms.rollout_correction`."""

from torch import Tensor

from verl.algorithms.rollout_correction.apply import (
    apply_bypass_mode,
    compute_rollout_correction_and_add_to_batch,
    correct,
)
from verl.algorithms.rollout_correction.diagnostics import (
    compute_offpolicy_metrics,
    compute_rollout_corr_metrics_from_logprobs,
)
from verl.algorithms.rollout_correction.importance import compute_is_metrics, compute_rollout_correction_weights
from verl.algorithms.rollout_correction.rejection import compute_rollout_rejection_mask, compute_rs_metrics
from verl.algorithms.rollout_correction.spec import SAFETY_BOUND, parse_correction
from verl.protocol import DataProto

__all__ = [
    "SAFETY_BOUND",
    "apply_bypass_mode",
    "apply_rollout_correction",
    "compute_is_metrics",
    "compute_offpolicy_metrics",
    "compute_rollout_corr_metrics_from_logprobs",
    "compute_rollout_correction_and_add_to_batch",
    "compute_rollout_correction_and_rejection_mask",
    "compute_rollout_correction_weights",
    "compute_rollout_rejection_mask",
    "compute_rs_metrics",
]

# The name that recipes from before bypass mode was called so import.
apply_rollout_correction = apply_bypass_mode


def compute_rollout_correction_and_rejection_mask(
    old_log_prob: Tensor,
    rollout_log_prob: Tensor,
    response_mask: Tensor,
    rollout_is: str | None = None,
    rollout_is_threshold: str | float | None = 2.0,
    rollout_is_batch_normalize: bool = False,
    rollout_rs: str | None = None,
    rollout_rs_threshold: str | float | None = None,
) -> tuple[DataProto | None, Tensor, dict[str, float]]:
    """(batch with `rollout_is_weights` or None, response mask after rejection, metrics), from log-probs [B, T]."""
    spec = parse_correction(
        rollout_is, rollout_is_threshold, rollout_is_batch_normalize, rollout_rs, rollout_rs_threshold
    )
    found = correct(old_log_prob, rollout_log_prob, response_mask, spec)
    weights = None if found.weights is None else DataProto.from_dict(tensors={"rollout_is_weights": found.weights})
    return weights, found.mask, found.metrics
