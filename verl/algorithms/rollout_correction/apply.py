# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Put importance weights and rejection masks on a batch, or declare the rollout policy to be the old policy.

Shapes: B trajectories, T response tokens. A batch is anything with `batch` (tensors by name) and `meta_info`.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from verl.algorithms.rollout_correction.diagnostics import compute_offpolicy_metrics, with_prefix
from verl.algorithms.rollout_correction.importance import importance_weights
from verl.algorithms.rollout_correction.rejection import rejection_mask
from verl.algorithms.rollout_correction.spec import CorrectionSpec, read_correction
from verl.algorithms.settings import setting
from verl.errors import ConfigError, DataError

BYPASS_KEY = "rollout_correction"
"""Entry of `meta_info` that tells the actor's loss that the old policy is the rollout policy."""

_SETTINGS = {
    "rollout_is": None,
    "rollout_is_threshold": 2.0,
    "rollout_is_batch_normalize": False,
    "rollout_rs": None,
    "rollout_rs_threshold": None,
    "bypass_mode": True,
    "loss_type": "ppo_clip",
}


class Correction(NamedTuple):
    """Importance weights [B, T] if asked for, the response mask [B, T] after rejection, and logged metrics."""

    weights: Tensor | None
    mask: Tensor
    metrics: dict[str, float]


@torch.no_grad()
def correct(old_log_prob: Tensor, rollout_log_prob: Tensor, response_mask: Tensor, spec: CorrectionSpec) -> Correction:
    """Measure the mismatch and form weights and mask, all [B, T]; weights cover the mask before rejection."""
    log_ratio_BT = old_log_prob - rollout_log_prob
    weights, mask = None, response_mask
    metrics = compute_offpolicy_metrics(old_log_prob, rollout_log_prob, response_mask)
    if spec.importance is not None:
        weights, found = importance_weights(log_ratio_BT, response_mask, spec.importance)
        metrics |= found
    if spec.rejection:
        mask, found = rejection_mask(log_ratio_BT, response_mask, spec.rejection)
        metrics |= found
    return Correction(weights, mask, with_prefix(metrics))


def compute_rollout_correction_and_add_to_batch(batch: Any, rollout_corr_config: Any) -> tuple[Any, dict[str, float]]:
    """Decoupled mode: correct from rollout to old policy; sets `response_mask` and, if asked, `rollout_is_weights`."""
    found = correct(
        _tensor(batch, "old_log_probs"),
        _tensor(batch, "rollout_log_probs"),
        _tensor(batch, "response_mask"),
        read_correction(rollout_corr_config),
    )
    batch.batch["response_mask"] = found.mask
    if found.weights is not None:
        batch.batch["rollout_is_weights"] = found.weights
    return batch, found.metrics


def apply_bypass_mode(batch: Any, rollout_corr_config: Any = None, policy_loss_config: Any = None) -> None:
    """Take the rollout's log-probabilities as the old policy's, and say so in the batch.

    The actor's loss then is `bypass_mode` with this correction (see `verl.workers.utils.losses`). A loss other than
    PPO's keeps its own form with the new anchor; it cannot be combined with importance weights or rejection here.
    """
    settings = {name: setting(rollout_corr_config, name, default) for name, default in _SETTINGS.items()}
    spec = read_correction(settings)
    loss_mode = setting(policy_loss_config, "loss_mode", "vanilla")
    if loss_mode not in ("vanilla", "bypass_mode") and (spec.importance or spec.rejection):
        raise ConfigError(
            "in bypass mode importance weights and rejection work with PPO's or REINFORCE's loss only",
            where="actor.policy_loss.loss_mode",
            got=loss_mode,
            expected="vanilla | bypass_mode",
            remedy="set algorithm.rollout_correction.bypass_mode=false to combine them",
        )
    batch.batch["old_log_probs"] = _tensor(batch, "rollout_log_probs")
    batch.meta_info[BYPASS_KEY] = settings


def _tensor(batch: Any, name: str) -> Tensor:
    if name not in batch.batch.keys():  # noqa: SIM118 - a TensorDict answers `in` only through keys()
        raise DataError(
            "rollout correction needs a tensor that the batch does not have",
            got=sorted(batch.batch.keys()),
            expected=name,
            remedy="set actor_rollout_ref.rollout.calculate_log_probs=true" if name == "rollout_log_probs" else None,
        )
    return batch.batch[name]
