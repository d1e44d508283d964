# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""How far the training policy is from the policy that made the rollouts.

Shapes: B trajectories, T response tokens; `log r` is training minus rollout log-probability. Means over sequences count
the sequences that have a token left.
"""

from typing import Any

import torch
from torch import Tensor

from verl.algorithms.rollout_correction.spec import SAFETY_BOUND
from verl.algorithms.rollout_correction.statistics import effective_sample_size, summarize
from verl.algorithms.tensor_math import masked_mean, masked_sum

PREFIX = "rollout_corr/"


@torch.no_grad()
def compute_offpolicy_metrics(
    old_log_prob: Tensor, rollout_log_prob: Tensor | None, response_mask: Tensor
) -> dict[str, Any]:
    """KL, perplexities, chi-square and effective sample size; only the training perplexity without a rollout policy.

    `kl = mean(-log r)`; `k3_kl = mean(r - log r - 1)`; `chi2_token = mean r^2 - 1`; `chi2_seq = mean r_seq^2 - 1`
    with r_seq the product over a response; `ess = 1 / mean((r / mean r)^2)`. `log r` is cut at ±20 before exp.
    """
    counted_B = response_mask.sum(-1) > 0
    training_B = masked_mean(old_log_prob, response_mask, -1)
    metrics = {
        "training_ppl": _mean((-training_B).exp(), counted_B),
        "training_log_ppl": _mean(-training_B, counted_B),
    }
    if rollout_log_prob is None:
        return metrics
    log_r_BT = old_log_prob - rollout_log_prob
    bounded_BT = log_r_BT.clamp(-SAFETY_BOUND, SAFETY_BOUND)
    log_r_seq_B = masked_sum(log_r_BT, response_mask, -1).clamp(-SAFETY_BOUND, SAFETY_BOUND)
    rollout_B = masked_mean(rollout_log_prob, response_mask, -1)
    gap_B = rollout_B - training_B
    gap = summarize(gap_B, counted_B)
    return metrics | {
        "kl": masked_mean(-log_r_BT, response_mask).item(),
        "k3_kl": masked_mean(torch.expm1(bounded_BT) - bounded_BT, response_mask).item(),
        "rollout_ppl": _mean((-rollout_B).exp(), counted_B),
        "rollout_log_ppl": _mean(-rollout_B, counted_B),
        "log_ppl_diff": gap.mean,
        "log_ppl_abs_diff": _mean(gap_B.abs(), counted_B),
        "log_ppl_diff_max": gap.max,
        "log_ppl_diff_min": gap.min,
        "ppl_ratio": _mean(gap_B.exp(), counted_B),
        "chi2_token": _mean((2 * bounded_BT).exp() - 1, response_mask),
        "chi2_seq": _mean((2 * log_r_seq_B).exp() - 1, counted_B),
        "ess": effective_sample_size(bounded_BT.exp(), response_mask),
    }


def _mean(values: Tensor, mask: Tensor) -> float:
    return summarize(values, mask).mean


def compute_rollout_corr_metrics_from_logprobs(
    log_prob: Tensor, rollout_log_prob: Tensor, response_mask: Tensor
) -> dict[str, float]:
    """The same numbers under their logged names."""
    return with_prefix(compute_offpolicy_metrics(log_prob, rollout_log_prob, response_mask))


def with_prefix(metrics: dict[str, float]) -> dict[str, float]:
    """Names as they are logged: `rollout_corr/...`."""
    return {PREFIX + name: value for name, value in metrics.items()}


def mismatch_line(metrics: dict[str, float]) -> str | None:
    """One line on rollout against trainer from logged metrics, or None where nothing was measured."""
    for prefix in (PREFIX, "actor/" + PREFIX):
        if prefix + "k3_kl" in metrics:
            k3, ess = metrics[prefix + "k3_kl"], metrics[prefix + "ess"]
            return f"rollout/trainer mismatch: k3 {k3:.1e}, effective sample size {ess:.1%}"
    return None
