# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Text out of weights. Names resolve on first use: vLLM's workers import this package and need none of them."""

import importlib
from typing import Any

_HOMES = {
    "BaseRollout": "verl.workers.rollout.base",
    "get_rollout_class": "verl.workers.rollout.base",
    "RolloutReplica": "verl.workers.rollout.replica",
    "HFRollout": "verl.workers.rollout.hf_rollout",
}

__all__ = ["BaseRollout", "HFRollout", "RolloutReplica", "get_rollout_class"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
