# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Public path."""

from verl.experimental.reward_loop.whole_batch import (
    PrimeRewardManager,
    parallel_compute_score_async,
    run_reward_scoring,
    single_compute_score,
)

__all__ = ["PrimeRewardManager", "parallel_compute_score_async", "run_reward_scoring", "single_compute_score"]
