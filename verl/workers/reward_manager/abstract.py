# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Public path."""

from verl.experimental.reward_loop.whole_batch import AbstractRewardManager

__all__ = ["AbstractRewardManager"]
