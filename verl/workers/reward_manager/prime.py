# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Public path."""

from verl.experimental.reward_loop.whole_batch import PrimeRewardManager, run_reward_scoring

__all__ = ["PrimeRewardManager", "run_reward_scoring"]
