# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics of one training batch: data, timing, throughput, mismatch, variance.

Shapes: B trajectories, P prompt tokens, T response tokens.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verl.algorithms.log_prob_diff import calculate_debug_metrics
from verl.algorithms.rollout_correction.apply import BYPASS_KEY
from verl.algorithms.rollout_correction.diagnostics import compute_rollout_corr_metrics_from_logprobs, mismatch_line
from verl.algorithms.tensor_math import masked_mean, masked_sum
from verl.trainer.ppo.validation_metrics import bootstrap_metric, calc_maj_val, process_validation_metrics
from verl.utils.metric import reduce_metrics

__all__ = [
    "bootstrap_metric",
    "calc_maj_val",
    "compute_data_metrics",
    "compute_gdpo_metrics",
    "compute_throughout_metrics",
    "compute_timing_metrics",
    "compute_variance_proxy_metrics",
    "mismatch_line",
    "process_validation_metrics",
    "reduce_metrics",
    "rollout_mismatch_metrics",
    "scores_of",
    "unscored_rows",
]

# The engine's own word first: `stop_reason` is "completed" for an answer that ended and for one that was cut.
_STOP_REASONS = ("finish_reason", "stop_reason")
_ENDS = ("stop", "length")
# The generation time is spent on response tokens, every other timer on all tokens.
_TIMERS_OF_ALL_TOKENS = ("ref", "values", "adv", "update_critic", "update_actor")


def compute_data_metrics(batch: Any, use_critic: bool = True) -> dict[str, Any]:
    """Scores, rewards, advantages, returns, values, lengths and turns of a batch; 0 where nothing can be counted.

    Aborted (empty) and unscorable (NaN, or `reward_error`) trajectories are left out of scores and rewards.
    """
    tensors = batch.batch
    info = _compute_response_info(batch)
    mask_BT = tensors["response_mask"].bool()
    answered_B = info["response_length"] > 0
    scored_B = answered_B & ~unscored_rows(batch)
    metrics: dict[str, Any] = {}
    for name, key in (("score", "token_level_scores"), ("rewards", "token_level_rewards")):
        total_B = tensors[key].sum(-1)
        metrics |= _spread(f"critic/{name}", total_B[scored_B & torch.isfinite(total_B)])
    for name in ("advantages", "returns"):
        metrics |= _spread(f"critic/{name}", tensors[name][mask_BT])
    if use_critic:
        metrics |= _value_metrics(tensors["values"][mask_BT], tensors["returns"][mask_BT])
    metrics |= _length_metrics(batch, info, answered_B)
    for column, name in (("__num_turns__", "num_turns"), ("tool_call_counts", "tool_call_counts")):
        if column in batch.non_tensor_batch:
            counts = torch.from_numpy(np.asarray(batch.non_tensor_batch[column], dtype=np.float64))
            metrics |= _spread(name, counts)
    return metrics


def unscored_rows(batch: Any) -> Tensor:
    """Rows whose zeros are no score [B], bool: the reward failed and nothing was put in its place.

    Such a row has `reward_error` and no token left in its mask; where `reward.on_error` gives a value, tokens stay.
    """
    kept_B = batch.batch["response_mask"].bool().any(-1)
    errors = batch.non_tensor_batch.get("reward_error", [None] * len(kept_B))
    failed_B = torch.tensor([error is not None for error in errors], dtype=torch.bool, device=kept_B.device)
    return failed_B & ~kept_B


def scores_of(batch: Any, key: str) -> list[float | None]:
    """The summed score of each row of the tensor `key`, None where the reward failed."""
    totals = batch.batch[key].sum(-1).tolist()
    return [None if failed else total for total, failed in zip(totals, unscored_rows(batch).tolist(), strict=True)]


def _compute_response_info(batch: Any) -> dict[str, Tensor]:
    """Real tokens of each prompt and response [B], and the response part of the attention mask [B, T]."""
    width = batch.batch["responses"].shape[-1]
    prompt_mask, response_mask = batch.batch["attention_mask"].split(
        [batch.batch["attention_mask"].shape[-1] - width, width], dim=-1
    )
    return {
        "response_mask": response_mask,
        "prompt_length": prompt_mask.sum(-1).float(),
        "response_length": response_mask.sum(-1).float(),
    }


def _spread(name: str, values: Tensor) -> dict[str, float]:
    if not values.numel():
        return {f"{name}/mean": 0.0, f"{name}/max": 0.0, f"{name}/min": 0.0}
    values = values.detach().double()
    return {
        f"{name}/mean": values.mean().item(),
        f"{name}/max": values.max().item(),
        f"{name}/min": values.min().item(),
    }


def _value_metrics(values: Tensor, returns: Tensor) -> dict[str, float]:
    explained = 0.0
    if values.numel() > 1:
        explained = (1.0 - (returns - values).var() / (returns.var() + 1e-5)).item()
    return _spread("critic/values", values) | {"critic/vf_explained_var": explained}


def _length_metrics(batch: Any, info: dict[str, Tensor], answered_B: Tensor) -> dict[str, float]:
    response_B, prompt_B = info["response_length"], info["prompt_length"]
    limit = batch.batch["responses"].shape[-1]
    prompt_limit = batch.batch["attention_mask"].shape[-1] - limit
    cut_B = _cut_short(batch, response_B, limit)
    return {
        **_spread("response_length", response_B),
        "response_length/clip_ratio": _mean(cut_B),
        **_spread("response_length_non_aborted", response_B[answered_B]),
        "response_length_non_aborted/clip_ratio": _mean(cut_B[answered_B]),
        "response/aborted_ratio": _mean(~answered_B),
        **_spread("prompt_length", prompt_B),
        "prompt_length/clip_ratio": _mean(prompt_B == prompt_limit),
    }


def _cut_short(batch: Any, response_B: Tensor, limit: int) -> Tensor:
    """Which responses the length limit cut: by the reason that a row gives, else by its width."""
    cut_B = response_B == limit
    for row in range(len(cut_B)):
        words = [batch.non_tensor_batch[name][row] for name in _STOP_REASONS if name in batch.non_tensor_batch]
        word = next((word for word in words if word in _ENDS), None)
        if word is not None:
            cut_B[row] = word == "length"
    return cut_B


def _mean(flags: Tensor) -> float:
    return flags.double().mean().item() if flags.numel() else 0.0


def compute_timing_metrics(batch: Any, timing_raw: dict[str, float]) -> dict[str, float]:
    """`timing_s/<timer>`, and milliseconds for each token that the timer worked on."""
    info = _compute_response_info(batch)
    num_response = info["response_length"].sum().item()
    num_all = num_response + info["prompt_length"].sum().item()
    tokens = {"gen": num_response, **dict.fromkeys(_TIMERS_OF_ALL_TOKENS, num_all)}
    return {f"timing_s/{name}": seconds for name, seconds in timing_raw.items()} | {
        f"timing_per_token_ms/{name}": timing_raw[name] * 1000 / tokens[name] if tokens[name] else 0.0
        for name in tokens
        if name in timing_raw
    }


def compute_throughout_metrics(batch: Any, timing_raw: dict[str, float], n_gpus: int) -> dict[str, float]:
    """Tokens of the step, its seconds, and tokens per second and device."""
    num_tokens, seconds = sum(batch.meta_info["global_token_num"]), timing_raw["step"]
    device_seconds = seconds * n_gpus
    return {
        "perf/total_num_tokens": num_tokens,
        "perf/time_per_step": seconds,
        "perf/throughput": num_tokens / device_seconds if device_seconds else 0.0,
    }


def rollout_mismatch_metrics(batch: Any) -> dict[str, float]:
    """Rollout against recomputed log-probabilities; in bypass mode nothing is recomputed, and the actor measures."""
    if BYPASS_KEY in batch.meta_info or "old_log_probs" not in batch.batch.keys():  # noqa: SIM118
        return {"training/rollout_probs_diff_valid": 0}
    tensors = batch.batch
    return calculate_debug_metrics(batch) | compute_rollout_corr_metrics_from_logprobs(
        tensors["old_log_probs"], tensors["rollout_log_probs"], tensors["response_mask"]
    )


def compute_variance_proxy_metrics(batch: Any, gradient_norm: float | None = None) -> dict[str, float]:
    """Signal and noise of the policy gradient, from one gradient norm and a proxy of its second moment.

    With `W = sum_t (1 - 2 pi_t + sum pi^2) w_t^2` (w: importance weight, 1 if absent) and A the mean advantage of a
    trajectory: signal = |g|^2, total = mean(A^2 W), noise = max(0, (total - signal) / (N - 1)). Empty without
    `sum_pi_squared`, `old_log_probs` and `advantages` in the batch; signal and noise need `gradient_norm`.
    """
    tensors = batch.batch
    if not {"sum_pi_squared", "old_log_probs", "advantages"} <= set(tensors.keys()):
        return {}
    mask_BT = tensors["response_mask"]
    energy_BT = 1 - 2 * tensors["old_log_probs"].exp() + tensors["sum_pi_squared"]
    weights = tensors.get("rollout_is_weights", None)
    if weights is not None:
        energy_BT = energy_BT * weights.square()
    counted_B = mask_BT.sum(-1) > 0
    energy_B = masked_sum(energy_BT, mask_BT, -1)
    squared_B = masked_mean(tensors["advantages"], mask_BT, -1).square()
    total = masked_mean(squared_B * energy_B, counted_B).item()
    metrics = {
        "variance_proxy/proxy2_total_power": total,
        "variance_proxy/expected_a_squared": masked_mean(squared_B, counted_B).item(),
        "variance_proxy/expected_w": masked_mean(energy_B, counted_B).item(),
    }
    if gradient_norm is not None:
        signal, number = float(gradient_norm) ** 2, int(counted_B.sum())
        metrics["variance_proxy/proxy1_signal_strength"] = signal
        metrics["variance_proxy/proxy3_pure_noise"] = max(0.0, (total - signal) / (number - 1)) if number > 1 else 0.0
    return metrics


def compute_gdpo_metrics(batch: Any, reward_keys: Iterable[str]) -> dict[str, float]:
    """Mean, deviation and extremes of each separate reward of GDPO; trajectories without it are left out."""
    metrics = {}
    for key in reward_keys:
        column = batch.non_tensor_batch.get(key, [])
        values = np.array([np.nan if value is None else float(value) for value in column], dtype=np.float64)
        values = values[np.isfinite(values)]
        found = (values.mean(), values.std(), values.max(), values.min()) if len(values) else (0.0,) * 4
        for name, value in zip(("mean", "std", "max", "min"), found, strict=True):
            metrics[f"gdpo/{key}/{name}"] = float(value)
    return metrics
