# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Trajectory to reward: workers that score each trajectory as it ends, and the managers that say how."""

import importlib
from typing import Any

_HOMES = {
    "RewardLoopManager": "verl.experimental.reward_loop.reward_loop",
    "RewardLoopWorker": "verl.experimental.reward_loop.reward_loop",
    "migrate_legacy_reward_impl": "verl.config.legacy_reward",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # Lazy: the processes that score import a module of this package and must stay small, because they are forked.
    if name not in _HOMES:
        raise AttributeError(f"module 'verl.experimental.reward_loop' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
