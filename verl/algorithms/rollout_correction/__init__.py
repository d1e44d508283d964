# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Correction for data that another policy (or another engine's arithmetic) has made."""

from verl.algorithms.rollout_correction.apply import apply_bypass_mode, compute_rollout_correction_and_add_to_batch
from verl.algorithms.rollout_correction.diagnostics import (
    compute_offpolicy_metrics,
    compute_rollout_corr_metrics_from_logprobs,
    mismatch_line,
)

__all__ = [
    "apply_bypass_mode",
    "compute_offpolicy_metrics",
    "compute_rollout_corr_metrics_from_logprobs",
    "compute_rollout_correction_and_add_to_batch",
    "mismatch_line",
]
