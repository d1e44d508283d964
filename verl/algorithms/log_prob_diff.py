# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""How much the rollout's probabilities differ from the trainer's, token by token.

Shapes: B trajectories, T response tokens.
"""

from typing import Any

import torch
from torch import Tensor

from verl.algorithms.rollout_correction.statistics import summarize
from verl.algorithms.tensor_math import masked_mean


def calculate_log_prob_diff(log_probs1: Tensor, log_probs2: Tensor, mask: Tensor) -> Tensor:
    """Absolute difference of the probabilities at the masked places: [B, T] -> [n]."""
    keep = mask.bool()
    return (log_probs1[keep].exp() - log_probs2[keep].exp()).abs()


def pearson_correlation_coefficient(tensor1: Tensor, tensor2: Tensor, mask: Tensor) -> float:
    """Correlation of the probabilities (both tensors are log-probs) over the mask; 0 where one of them is constant."""
    if tensor1.shape != tensor2.shape or mask.shape != tensor1.shape:
        return 0.0
    keep = mask.bool()
    a, b = (tensor[keep].double().exp() for tensor in (tensor1, tensor2))
    if not a.numel():
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    scale = (a.square().sum() * b.square().sum()).sqrt()
    return (a * b).sum().div(scale).item() if scale > 0 else 0.0


def calculate_token_list_diff(tensor1: Tensor, tensor2: Tensor, mask: Tensor) -> Tensor:
    """Share of each row's masked tokens that differ: [B, T] -> [B]."""
    return masked_mean((tensor1 != tensor2).to(torch.float32), mask, -1)


def calculate_debug_metrics(data: Any) -> dict[str, float]:
    """`training/rollout_probs_diff_*`: rollout against recomputed log-probabilities; only `valid` = 0 without both."""
    tensors = data.batch
    if not {"rollout_log_probs", "old_log_probs"} <= set(tensors.keys()):
        return {"training/rollout_probs_diff_valid": 0}
    mask = tensors["response_mask"] if "response_mask" in tensors.keys() else _response_part(tensors)  # noqa: SIM118
    rollout, trainer = tensors["rollout_log_probs"], tensors["old_log_probs"]
    difference = calculate_log_prob_diff(rollout, trainer, mask)
    found = summarize(difference, torch.ones_like(difference))
    return {
        "training/rollout_probs_diff_valid": 1,
        "training/rollout_probs_diff_max": found.max,
        "training/rollout_probs_diff_mean": found.mean,
        "training/rollout_probs_diff_std": found.std,
        "training/rollout_actor_probs_pearson_corr": pearson_correlation_coefficient(rollout, trainer, mask),
    }


def _response_part(tensors: Any) -> Tensor:
    return tensors["attention_mask"][:, -tensors["responses"].shape[-1] :]
