# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the local steps of a version fold by their documented rules."""

import numpy as np
import pytest

from verl.experimental.fully_async_policy.detach_utils import MetricsAggregator


def folded(name: str, values: list[float], counts: list[int] | None = None) -> float:
    aggregator = MetricsAggregator(total_gpus=2)
    for value, count in zip(values, counts or [1] * len(values), strict=True):
        aggregator.add_step_metrics({name: value}, sample_count=count)
    return aggregator.get_aggregated_metrics()[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("perf/time_per_step", 6.0),
        ("reward/num_errors", 6.0),
        ("reward/num_timeouts", 6.0),
        ("timing_s/update_actor", 6.0),
        ("timing_s/agent_loop/tool_calls/max", 3.0),
        ("timing_s/agent_loop/tool_calls/mean", 2.0),
        ("critic/score/max", 3.0),
        ("critic/score/min", 1.0),
        ("critic/score/mean", 2.0),
        ("fully_async/count/total_generated_samples", 3.0),
        ("training/global_step", 3.0),
        ("fully_async/total_wait_time", 6.0),
        ("actor/pg_loss", 2.0),
        # "min", "max" and "sum" inside another word say nothing.
        ("x/terminated_ratio", 2.0),
        ("x/softmax_temp", 2.0),
        ("x/tokens_consumed", 2.0),
        ("training/rollout_probs_diff_max", 3.0),
    ],
)
def test_each_name_follows_its_rule(name: str, expected: float) -> None:
    assert folded(name, [1.0, 2.0, 3.0]) == expected


def test_a_weighted_average_counts_the_samples_of_each_step() -> None:
    assert folded("x/weighted_avg", [0.0, 4.0], counts=[1, 3]) == 3.0


def test_throughput_and_idle_ratio_are_taken_over_the_whole_version() -> None:
    aggregator = MetricsAggregator(total_gpus=2)
    for tokens, seconds, waited in ((100, 1.0, 0.5), (300, 3.0, 0.5)):
        aggregator.add_step_metrics(
            {
                "perf/total_num_tokens": tokens,
                "perf/time_per_step": seconds,
                "timing_s/step": seconds,
                "timing_s/gen": waited,
            },
            sample_count=4,
        )
    metrics = aggregator.get_aggregated_metrics()
    assert metrics["perf/throughput"] == pytest.approx(400 / (4.0 * 2))
    assert metrics["fully_async/trainer/idle_ratio"] == pytest.approx(0.25)


def test_what_is_no_number_is_left_out_and_numpy_scalars_count() -> None:
    aggregator = MetricsAggregator(total_gpus=1)
    aggregator.add_step_metrics({"text": "x", "array": np.zeros(3), "scalar": np.float32(2.0)}, sample_count=1)
    assert aggregator.get_aggregated_metrics() == {"scalar": 2.0}


def test_a_reset_forgets_the_version() -> None:
    aggregator = MetricsAggregator(total_gpus=1)
    aggregator.add_step_metrics({"actor/loss": 1.0}, sample_count=1)
    aggregator.reset()
    assert aggregator.get_aggregated_metrics() == {}
