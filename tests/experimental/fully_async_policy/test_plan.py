# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The plan follows verl's formulas in exact arithmetic."""

from types import SimpleNamespace

import pytest

from verl.errors import ConfigError
from verl.experimental.fully_async_policy.plan import AsyncPlan


def plan(required=4, threshold=0.0, trigger=1, total=100, rows=100, epochs=1, steps=None) -> AsyncPlan:
    config = SimpleNamespace(
        async_training=SimpleNamespace(
            require_batches=1, trigger_parameter_sync_step=trigger, staleness_threshold=threshold
        ),
        actor_rollout_ref=SimpleNamespace(actor=SimpleNamespace(ppo_mini_batch_size=required)),
        rollout=SimpleNamespace(total_rollout_steps=total),
        trainer=SimpleNamespace(total_epochs=epochs, total_training_steps=steps),
    )
    return AsyncPlan.of(config, prompts_per_epoch=rows)


@pytest.mark.parametrize(
    ("required", "threshold", "trigger", "expected"),
    [(50, 0.16, 1, 58), (100, 0.15, 4, 460), (4, 0.0, 1, 4), (3, 0.1, 1, 3), (32, 0.5, 4, 192)],
)
def test_the_budget_is_exact(required: int, threshold: float, trigger: int, expected: int) -> None:
    assert plan(required, threshold, trigger, total=1000, rows=1000).max_required_samples == expected


def test_concurrency_is_sixteen_groups_a_server_within_the_budget() -> None:
    assert plan(100, total=1000, rows=1000).max_concurrent_samples(2) == 32
    assert plan(8).max_concurrent_samples(2) == 8


def test_prompts_of_the_run_are_bounded_by_steps_and_by_epochs() -> None:
    assert plan(5, total=None, rows=10, epochs=5).total_groups == 50
    assert plan(5, total=100, rows=10, epochs=3).total_groups == 30
    assert plan(5, total=12, rows=10, epochs=3).total_groups == 10
    assert plan(5, total=None, rows=10, epochs=5, steps=3).total_groups == 15


def test_versions_are_whole_triggers() -> None:
    assert plan(4, trigger=4, total=100).total_versions == 6
    assert plan(4, trigger=4, total=100).total_steps == 25


def test_a_run_shorter_than_one_step_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.total_rollout_steps"):
        plan(required=32, total=16)
