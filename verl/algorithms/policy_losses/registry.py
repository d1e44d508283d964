# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Names of the policy losses, and what all of them share.

Shapes: B trajectories, T response tokens.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from verl.algorithms.aggregate import agg_loss
from verl.algorithms.settings import setting
from verl.algorithms.tensor_math import masked_mean, zero_outside
from verl.registry import Registry

PolicyLossFn = Callable[..., tuple[Tensor, dict[str, Any]]]
"""(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, rollout_is_weights) -> (loss, metrics)."""

POLICY_LOSS_REGISTRY: Registry[PolicyLossFn] = Registry("policy loss", "actor.policy_loss.loss_mode")

# exp(20) is 5e8: larger ratios carry no information and overflow when they are squared.
LOG_RATIO_BOUND = 20.0
_BATCH_INFO = ("dp_size", "batch_num_tokens", "global_batch_size", "loss_scale_factor")


def register_policy_loss(name: str) -> Callable[[PolicyLossFn], PolicyLossFn]:
    """Decorator: make a loss selectable by `actor.policy_loss.loss_mode`."""
    return POLICY_LOSS_REGISTRY.register(name)


def get_policy_loss_fn(name: str) -> PolicyLossFn:
    """The loss of this name; an unknown name is answered with the known ones."""
    return POLICY_LOSS_REGISTRY.get(name)


class Inputs(NamedTuple):
    """The tensors of a loss with everything outside the mask set to zero, and the ratio to the old policy."""

    log_prob: Tensor
    old_log_prob: Tensor
    advantages: Tensor
    log_ratio: Tensor
    """log of policy over old policy, within ±20."""
    ratio: Tensor
    mask: Tensor
    ppo_kl: float
    """Masked mean of old minus new log-probability."""


def prepare(old_log_prob: Tensor, log_prob: Tensor, advantages: Tensor, response_mask: Tensor) -> Inputs:
    """Clean the inputs of a loss and form the ratio, all [B, T]."""
    log_prob = zero_outside(response_mask, log_prob)
    old_log_prob = zero_outside(response_mask, old_log_prob)
    log_ratio = (log_prob - old_log_prob).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    return Inputs(
        log_prob=log_prob,
        old_log_prob=old_log_prob,
        advantages=zero_outside(response_mask, advantages),
        log_ratio=log_ratio,
        ratio=log_ratio.exp(),
        mask=response_mask,
        ppo_kl=masked_mean(-log_ratio.detach(), response_mask).item(),
    )


def clip_range(config: Any) -> tuple[float, float]:
    """Lower and upper clip of the ratio; `clip_ratio` fills in for either one that is not set."""
    both = setting(config, "clip_ratio", 0.2)
    return setting(config, "clip_ratio_low", both), setting(config, "clip_ratio_high", both)


def batch_info(config: Any) -> dict[str, Any]:
    """Arguments of `agg_loss` that normalise over the whole mini-batch: what `config.global_batch_info` holds."""
    info = setting(config, "global_batch_info") or {}
    known = {key: info[key] for key in _BATCH_INFO if key in info}
    if known.get("loss_scale_factor") is None:
        known["loss_scale_factor"] = setting(config, "loss_scale_factor")
    return known


def finish(
    loss_BT: Tensor, mask_BT: Tensor, loss_agg_mode: str, config: Any, rollout_is_weights: Tensor | None = None
) -> Tensor:
    """Weight the loss of each token by its importance weight, if there is one, and aggregate."""
    if rollout_is_weights is not None:
        loss_BT = loss_BT * rollout_is_weights.detach()
    return agg_loss(loss_BT, mask_BT, loss_agg_mode, **batch_info(config))


def share(condition_BT: Tensor, mask_BT: Tensor) -> float:
    """Share of the masked tokens for which the condition holds."""
    return masked_mean(condition_BT.to(torch.float32), mask_BT).item()
