# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Validation samples as a table in whatever trackers are open."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

from verl.tracking.tracking import ALIASES, open_backends

logger = logging.getLogger(__name__)


@dataclass
class ValidationGenerationsLogger:
    """Sends samples to the backends that a `Tracking` of this process opened."""

    project_name: str | None = None
    experiment_name: str | None = None

    def log(self, loggers: str | Sequence[str], samples: Sequence[Sequence[Any]], step: int) -> None:
        """Log `samples`, each (input, output, score), to the open backends among `loggers`."""
        asked = {ALIASES.get(name, name) for name in ([loggers] if isinstance(loggers, str) else loggers)}
        for backend in open_backends():
            if backend.name in asked:
                backend.call("log_generations", samples, step)

    def _log_to(self, name: str, samples: Sequence[Sequence[Any]], step: int) -> None:
        """`log` to one backend."""
        self.log([name], samples, step)

    log_generations_to_clearml = partialmethod(_log_to, "clearml")
    log_generations_to_mlflow = partialmethod(_log_to, "mlflow")
    log_generations_to_swanlab = partialmethod(_log_to, "swanlab")
    log_generations_to_tensorboard = partialmethod(_log_to, "tensorboard")
    log_generations_to_vemlp_wandb = partialmethod(_log_to, "vemlp_wandb")
    log_generations_to_wandb = partialmethod(_log_to, "wandb")
