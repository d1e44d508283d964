# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rows in: reinforcement-learning, supervised and preference data sets."""

import importlib
from typing import Any

_HOMES = {
    "RLHFDataset": "verl.utils.dataset.rl_dataset",
    "RMDataset": "verl.utils.dataset.rm_dataset",
    "MultiTurnSFTDataset": "verl.utils.dataset.multiturn_sft_dataset",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # Lazy: reading rows for reinforcement learning must not load what supervised training needs, and vice versa.
    if name not in _HOMES:
        raise AttributeError(f"module 'verl.utils.dataset' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
