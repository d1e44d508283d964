# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What travels from rollouter to trainer, how a batch is made of it, and how the metrics of a version add up."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from verl.experimental.agent_loop.postprocess import assemble
from verl.experimental.agent_loop.trajectory import Trajectory
from verl.experimental.fully_async_policy.rollout_sample import RolloutSample, ValidateMetrics
from verl.protocol import DataProto
from verl.utils.metric.utils import words

__all__ = [
    "MetricsAggregator",
    "RolloutSample",
    "ValidateMetrics",
    "assemble_batch_from_rollout_samples",
    "staleness_metrics",
]


def assemble_batch_from_rollout_samples(
    samples: list[RolloutSample],
    groups: list[list[Trajectory]],
    *,
    pad_token_id: int,
    prompt_length: int,
    response_length: int,
    temperature: float,
    version: int,
) -> tuple[DataProto, dict[str, float]]:
    """Pad the trajectories of a training batch once, and measure how old they are.

    Parameters
    ----------
    groups : trajectories of each sample, in the order of `samples`.
    version : the policy version that is trained now.

    Returns
    -------
    batch, and metrics under `fully_async/`.
    """
    batch = assemble(
        groups,
        pad_token_id=pad_token_id,
        prompt_length=prompt_length,
        response_length=response_length,
        temperature=temperature,
    )
    return batch, staleness_metrics(samples, batch, version)


def staleness_metrics(samples: list[RolloutSample], batch: DataProto, version: int) -> dict[str, float]:
    """Age of tokens and trajectories in versions, partial rollouts, and generation times of one batch."""
    first = np.asarray(batch.non_tensor_batch["min_global_steps"], dtype=np.int64)
    last = np.asarray(batch.non_tensor_batch["max_global_steps"], dtype=np.int64)
    seconds = np.array([row.get("generate_sequences", 0.0) for row in batch.meta_info["metrics"]])
    tools = np.array([row.get("tool_calls", 0.0) for row in batch.meta_info["metrics"]])
    token_versions_BT = batch.batch["token_versions"]
    ages = version - token_versions_BT[batch.batch["response_mask"].bool()].double()
    partial = first != last
    metrics = {
        "fully_async/count/stale_trajectory": float((version - last >= 1).sum()),
        "fully_async/staleness/token_age_mean": float(ages.mean()) if len(ages) else 0.0,
        "fully_async/staleness/token_age_max": float(ages.max()) if len(ages) else 0.0,
        "fully_async/staleness/trajectory_age_mean": float((version - first).mean()),
        "fully_async/staleness/trajectory_age_max": float((version - first).max()),
        "fully_async/partial/total_partial_num": float(partial.sum()),
        "fully_async/partial/partial_ratio": float(partial.mean()),
        "fully_async/partial/max_partial_span": float((last - first).max()),
        "fully_async/processing_time/avg": float(seconds.mean()),
        "fully_async/processing_time/max": float(seconds.max()),
        "fully_async/processing_time/min": float(seconds.min()),
    }
    if tools.any():
        for name, value in (("max", tools.max()), ("min", tools.min()), ("mean", tools.mean())):
            metrics[f"timing_s/agent_loop/tool_calls/{name}"] = float(value)
    for percent in (50, 95, 99):
        metrics[f"fully_async/processing_time/tp{percent}"] = float(np.percentile(seconds, percent))
    # The newest sample carries the most recent counters of the rollouter.
    newest = max(samples, key=lambda sample: sample.rollout_status.get("count/total_generated_samples", 0))
    metrics.update({f"fully_async/{key}": float(value) for key, value in newest.rollout_status.items()})
    return metrics


class MetricsAggregator:
    """Folds the metrics of the local steps between two weight publications into one record.

    The rule of a name is looked up in the table of exceptions first, then by its whole words: "min" is a word of
    `score/min` and none of `terminated_ratio`.
    """

    LAST = frozenset(
        f"fully_async/count/{name}"
        for name in (
            "total_generated_samples",
            "stale_samples_processed",
            "stale_trajectory_processed",
            "current_param_version",
            "dropped_stale_samples",
        )
    ) | {"training/global_step", "training/epoch"}
    BY_NAME = {
        "perf/time_per_step": "sum",
        "reward/num_errors": "sum",
        "reward/num_timeouts": "sum",
        "timing_s/agent_loop/tool_calls/min": "min",
        "timing_s/agent_loop/tool_calls/mean": "mean",
        "timing_s/agent_loop/tool_calls/max": "max",
    }
    BY_WORD = (
        ({"weighted"}, "weighted"),
        ({"mean", "avg", "average"}, "mean"),
        ({"max", "maximum"}, "max"),
        ({"min", "minimum"}, "min"),
        ({"sum", "total"}, "sum"),
    )

    def __init__(self, total_gpus: int) -> None:
        self.total_gpus = total_gpus
        self.reset()

    def reset(self) -> None:
        """Forget everything; a new version begins."""
        self._values: dict[str, list[float]] = defaultdict(list)
        self._weights: dict[str, list[int]] = defaultdict(list)
        self.num_steps = 0

    def add_step_metrics(self, metrics: dict[str, Any], sample_count: int) -> None:
        """Add the record of one local step over `sample_count` groups; values that are no numbers are left out."""
        self.num_steps += 1
        for name, value in metrics.items():
            if isinstance(value, int | float | np.number) or getattr(value, "ndim", None) == 0:
                self._values[name].append(float(value))
                self._weights[name].append(sample_count)

    def rule(self, name: str) -> str:
        """How values of `name` combine: last, sum, min, max, mean or weighted."""
        if name in self.LAST:
            return "last"
        if name in self.BY_NAME:
            return self.BY_NAME[name]
        if name.startswith("timing_s/"):
            return "sum"
        found = set(words(name))
        return next((rule for known, rule in self.BY_WORD if known & found), "mean")

    def get_aggregated_metrics(self) -> dict[str, float]:
        """One value per name, and the ratios that only make sense over the whole version."""
        out = {name: self._combine(name, values) for name, values in self._values.items()}
        if {"global_seqlen/max", "global_seqlen/min"} <= out.keys():
            out["global_seqlen/minmax_diff"] = out["global_seqlen/max"] - out["global_seqlen/min"]
        if {"perf/total_num_tokens", "perf/time_per_step"} <= out.keys() and out["perf/time_per_step"] > 0:
            out["perf/throughput"] = out["perf/total_num_tokens"] / (out["perf/time_per_step"] * self.total_gpus)
        if {"timing_s/gen", "timing_s/step"} <= out.keys() and out["timing_s/step"] > 0:
            out["fully_async/trainer/idle_ratio"] = out["timing_s/gen"] / out["timing_s/step"]
        return out

    def _combine(self, name: str, values: list[float]) -> float:
        rule = self.rule(name)
        if rule == "last":
            return values[-1]
        if rule == "weighted":
            return float(np.average(values, weights=self._weights[name]))
        reductions: dict[str, Callable[[list[float]], Any]] = {
            "sum": np.sum,
            "min": np.min,
            "max": np.max,
            "mean": np.mean,
        }
        return float(reductions[rule](values))
