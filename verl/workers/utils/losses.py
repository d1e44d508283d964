# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Algorithms applied to what an engine returns: loss and metrics of one micro-batch.

Shapes: B trajectories of the micro-batch, T response tokens. The counts are those of the whole mini-batch on all ranks,
so that the losses of the micro-batches add up. Bind the configuration first: `partial(ppo_loss, config)`.
"""

from typing import Any

from torch import Tensor

from verl.algorithms.aggregate import agg_loss
from verl.algorithms.kl import kl_penalty
from verl.algorithms.policy_losses import get_policy_loss_fn
from verl.algorithms.policy_losses.registry import batch_info
from verl.algorithms.rollout_correction.apply import BYPASS_KEY
from verl.algorithms.settings import Overlay, setting
from verl.algorithms.tensor_math import masked_mean, zero_outside
from verl.algorithms.value_loss import compute_value_loss
from verl.errors import DataError
from verl.utils.metric import AggregationType, Metric

Loss = tuple[Tensor, dict[str, Metric]]


def ppo_loss(
    config: Any,
    model_output: dict[str, Tensor],
    data: Any,
    dp_group: Any = None,
    *,
    dp_size: int = 1,
    batch_num_tokens: int | None = None,
    global_batch_size: int | None = None,
) -> Loss:
    """Policy loss, minus the entropy bonus, plus the KL loss, as `actor_rollout_ref.actor` says.

    `model_output`: `log_probs` [B, T], `entropy` [B, T] if asked for. `data`: `old_log_probs`, `advantages`,
    `response_mask`, and where they apply `ref_log_prob` and `rollout_is_weights`.
    """
    counts = _Counts(dp_size, batch_num_tokens, global_batch_size)
    config = counts.into(_with_bypass(config, data.meta_info))
    info, mode = batch_info(config), setting(config, "loss_agg_mode", "token-mean")
    tensors, mask = data.batch, data.batch["response_mask"]
    loss, found = get_policy_loss_fn(setting(config, "policy_loss.loss_mode", "vanilla"))(
        old_log_prob=tensors["old_log_probs"],
        log_prob=model_output["log_probs"],
        advantages=tensors["advantages"],
        response_mask=mask,
        loss_agg_mode=mode,
        config=config,
        rollout_is_weights=tensors.get("rollout_is_weights", None),
    )
    num_tokens = mask.sum().item()
    metrics = {name: _measured(name, value, num_tokens) for name, value in found.items()}
    metrics["actor/pg_loss"] = counts.loss_metric(loss)
    entropy, coefficient = model_output.get("entropy"), setting(config, "entropy_coeff", 0.0)
    if coefficient and entropy is None:
        raise DataError("an entropy bonus needs the entropy of the model", where="actor.entropy_coeff", got=coefficient)
    if entropy is not None:
        entropy_loss = agg_loss(entropy, mask, mode, **info)
        metrics["actor/entropy_loss"] = counts.loss_metric(entropy_loss)
        loss = loss - coefficient * entropy_loss if coefficient else loss
    if setting(config, "use_kl_loss", False):
        # Before the estimator: the gradient of a square is 0 * NaN where a masked value is NaN.
        log_prob, ref_log_prob = (
            zero_outside(mask, tensor) for tensor in (model_output["log_probs"], tensors["ref_log_prob"])
        )
        kl = kl_penalty(log_prob, ref_log_prob, setting(config, "kl_loss_type", "low_var_kl"))
        kl_loss = agg_loss(kl, mask, mode, **info)
        kl_coef = setting(config, "kl_loss_coef", 0.001)
        loss = loss + kl_coef * kl_loss
        metrics["actor/kl_loss"] = counts.loss_metric(kl_loss)
        metrics["actor/kl_coef"] = Metric(AggregationType.MEAN, kl_coef)
    return loss, metrics


def value_loss(
    config: Any,
    model_output: dict[str, Tensor],
    data: Any,
    dp_group: Any = None,
    *,
    dp_size: int = 1,
    batch_num_tokens: int | None = None,
    global_batch_size: int | None = None,
) -> Loss:
    """The critic's clipped loss, as `critic` says; `model_output`: `values` [B, T]. `data`: `values`, `returns`."""
    counts = _Counts(dp_size, batch_num_tokens, global_batch_size)
    mask, predicted = data.batch["response_mask"], model_output["values"]
    loss, clipfrac = compute_value_loss(
        vpreds=predicted,
        returns=data.batch["returns"],
        values=data.batch["values"],
        response_mask=mask,
        cliprange_value=setting(config, "cliprange_value", 0.5),
        loss_agg_mode=setting(config, "loss_agg_mode", "token-mean"),
        **batch_info(counts.into(config)),
    )
    num_tokens = mask.sum().item()
    return loss, {
        "critic/vf_loss": counts.loss_metric(loss),
        "critic/vf_clipfrac": _measured("critic/vf_clipfrac", clipfrac, num_tokens),
        "critic/vpred_mean": _measured("critic/vpred_mean", masked_mean(predicted.detach(), mask), num_tokens),
    }


def sft_loss(
    config: Any,
    model_output: dict[str, Tensor],
    data: Any,
    dp_group: Any = None,
    *,
    dp_size: int = 1,
    batch_num_tokens: int | None = None,
    global_batch_size: int | None = None,
) -> Loss:
    """Mean negative log-likelihood over `loss_mask` (or `response_mask`); `model_output`: `log_probs` [B, T].

    A mask longer than T is read at its last T places, where the predicted tokens are.
    """
    counts = _Counts(dp_size, batch_num_tokens, global_batch_size)
    log_prob, tensors = model_output["log_probs"], data.batch
    mask = tensors["loss_mask"] if "loss_mask" in tensors.keys() else tensors["response_mask"]  # noqa: SIM118
    loss = agg_loss(-log_prob, mask[:, -log_prob.shape[-1] :], "token-mean", **batch_info(counts.into(config)))
    return loss, {"loss": counts.loss_metric(loss)}


class _Counts:
    """Size of the whole mini-batch; None where this micro-batch is all there is."""

    def __init__(self, dp_size: int, batch_num_tokens: int | None, global_batch_size: int | None) -> None:
        self.info = {
            "dp_size": dp_size,
            "batch_num_tokens": batch_num_tokens,
            "global_batch_size": global_batch_size,
        }
        self.kind = AggregationType.MEAN if batch_num_tokens is None else AggregationType.SUM

    def into(self, config: Any) -> Overlay:
        """The configuration with the counts where the losses look for them."""
        return Overlay(config, global_batch_info=self.info)

    def loss_metric(self, loss: Tensor) -> Metric:
        """Shares of a loss add up over micro-batches; `dp_size` is undone by the mean over ranks."""
        return Metric(self.kind, loss.detach().item())


def _measured(name: str, value: Any, num_tokens: float) -> Metric:
    """A measured number: extremes stay extremes, everything else is a mean weighted by tokens."""
    last_word = name.rsplit("_", 1)[-1]
    metric = Metric({"max": AggregationType.MAX, "min": AggregationType.MIN}.get(last_word, AggregationType.MEAN))
    metric.append(value, weight=num_tokens)
    return metric


def _with_bypass(config: Any, meta_info: dict[str, Any]) -> Any:
    """The loss of bypass mode with the batch's correction, if the batch says so and the loss is PPO's."""
    correction = meta_info.get(BYPASS_KEY)
    policy_loss = setting(config, "policy_loss", {})
    if correction is None or setting(policy_loss, "loss_mode", "vanilla") not in ("vanilla", "bypass_mode"):
        return config
    return Overlay(config, policy_loss=Overlay(policy_loss, loss_mode="bypass_mode", rollout_correction=correction))
