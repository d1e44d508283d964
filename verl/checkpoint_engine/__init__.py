# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Weights from trainer ranks to rollout ranks: one contract, several roads."""

from typing import Any

from verl.checkpoint_engine.base import (
    CheckpointEngine,
    CheckpointEngineRegistry,
    CheckpointEngineWithCache,
    TensorMeta,
)
from verl.checkpoint_engine.collective import CollectiveCheckpointEngine
from verl.checkpoint_engine.colocated import ColocatedCheckpointEngine
from verl.checkpoint_engine.disk import DiskCheckpointEngine
from verl.checkpoint_engine.shm import ShmCheckpointEngine

__all__ = [
    "CheckpointEngine",
    "CheckpointEngineManager",
    "CheckpointEngineRegistry",
    "CheckpointEngineWithCache",
    "CheckpointEngineWorker",
    "CollectiveCheckpointEngine",
    "ColocatedCheckpointEngine",
    "DiskCheckpointEngine",
    "ShmCheckpointEngine",
    "TensorMeta",
]


def __getattr__(name: str) -> Any:
    if name in ("CheckpointEngineManager", "CheckpointEngineWorker"):
        from verl.checkpoint_engine import base

        return getattr(base, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
