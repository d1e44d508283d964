# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Upstream's formulas with exact arithmetic."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.config.async_training import (
    exact_floor,
    max_concurrent_samples,
    max_required_samples,
    required_samples,
    total_rollout_steps,
    total_train_steps,
)


@pytest.mark.parametrize(
    ("required", "trigger", "threshold", "expected"),
    [(50, 1, 0.16, 58), (100, 4, 0.15, 460), (32, 4, 0.1, 140), (64, 2, 0, 128), (3, 1, 0.5, 4), (16, 1, 1, 32)],
)
def test_the_staleness_budget_is_not_one_short(required: int, trigger: int, threshold: float, expected: int) -> None:
    assert max_required_samples(required, trigger, threshold) == expected


@given(st.integers(1, 4096), st.integers(1, 16), st.integers(0, 400))
def test_the_staleness_budget_equals_exact_arithmetic(required: int, trigger: int, percent: int) -> None:
    exact = Fraction(required * trigger) * (1 + Fraction(percent, 100))
    assert max_required_samples(required, trigger, percent / 100) == exact // 1


@pytest.mark.parametrize(("value", "floor"), [(57.99999999999999, 58), (57.9, 57), (-0.5, -1), (3.0, 3)])
def test_a_floor_is_taken_after_rounding_to_a_billionth(value: float, floor: int) -> None:
    assert exact_floor(value) == floor


def test_counts_of_a_run() -> None:
    assert required_samples(32, 4) == 128
    assert max_concurrent_samples(2, 1000) == 32
    assert max_concurrent_samples(8, 100) == 100
    assert total_rollout_steps(None, rows_per_epoch=1000, total_epochs=3) == 3000
    assert total_rollout_steps(512, rows_per_epoch=1000, total_epochs=3) == 512
    assert total_train_steps(5000, 128, 4) == 9
