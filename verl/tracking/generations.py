# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Validation samples as a table in whatever trackers are open."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
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
