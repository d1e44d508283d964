# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Numbers out: metrics to trackers, rollouts and validation samples to files."""

from verl.tracking import backends as _backends  # noqa: F401  registers console and tensorboard
from verl.tracking import services as _services  # noqa: F401  registers wandb, mlflow, swanlab, clearml, trackio
from verl.tracking.base import BACKENDS, Backend, RunInfo
from verl.tracking.files import read_metrics
from verl.tracking.generations import ValidationGenerationsLogger
from verl.tracking.resume import cut_after
from verl.tracking.rollout_dump import dump_generations
from verl.tracking.tracking import Tracking

__all__ = [
    "BACKENDS",
    "Backend",
    "RunInfo",
    "Tracking",
    "ValidationGenerationsLogger",
    "cut_after",
    "dump_generations",
    "read_metrics",
]
