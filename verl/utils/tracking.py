# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old path of `verl.tracking`."""

from verl.tracking import Tracking, ValidationGenerationsLogger
from verl.tracking.services import MLFLOW_MAX_ATTEMPTS, MLFLOW_SLEEP_SECONDS

__all__ = ["MLFLOW_MAX_ATTEMPTS", "MLFLOW_SLEEP_SECONDS", "Tracking", "ValidationGenerationsLogger"]
