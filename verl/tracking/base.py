# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a tracking backend is, and the guard that keeps its failures away from the run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl.registry import Registry

logger = logging.getLogger(__name__)

# A tracker that fails this often in a row is down; asking it again would only slow each step.
MAX_FAILURES_IN_A_ROW = 3


@dataclass(frozen=True)
class RunInfo:
    """What a backend is told about the run.

    `local_dir` is `trainer.default_local_dir`, None outside a run; `resume_step` is the checkpoint's step where
    the run continues an earlier one: records after it belong to rolled-back steps.
    """

    project_name: str
    experiment_name: str
    local_dir: Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    resume_step: int | None = None

    def trainer_option(self, name: str) -> Any:
        """`trainer.<name>` of the configuration, None where it is not set."""
        trainer = self.config.get("trainer") or {}
        return trainer.get(name)


class Backend:
    """One destination of metrics; subclasses write, `Guarded` handles what they raise."""

    def __init__(self, run: RunInfo) -> None:
        self.run = run

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Write one step's metrics."""
        raise NotImplementedError

    def log_generations(self, samples: Sequence[Sequence[Any]], step: int) -> None:
        """Write validation samples, each (input, output, score); a backend without tables has nothing to do."""

    def close(self) -> None:
        """Flush and release; called once."""


BACKENDS: Registry[Callable[[RunInfo], Backend]] = Registry("tracking backend", "trainer.logger")


class Guarded:
    """A backend whose failures are said once and counted, and never reach the run."""

    def __init__(self, name: str, start: Callable[[], Backend]) -> None:
        self.name = name
        self.failures = 0
        self._failures_in_a_row = 0
        self._backend: Backend | None = None
        try:
            self._backend = start()
        except Exception as error:
            self.failures = 1
            logger.warning("tracking backend %r is off: it could not start (%s)", name, _describe(error))

    @property
    def active(self) -> bool:
        """Whether calls still reach the backend."""
        return self._backend is not None

    def call(self, method: str, *args: Any) -> None:
        """Call a method of the backend; after too many failures in a row the backend is closed and left alone."""
        if self._backend is None:
            return
        try:
            getattr(self._backend, method)(*args)
            self._failures_in_a_row = 0
        except Exception as error:
            self._note_failure(method, error)

    def close(self) -> None:
        """Close the backend; a second time does nothing."""
        backend, self._backend = self._backend, None
        if backend is None:
            return
        try:
            backend.close()
        except Exception as error:
            self.failures += 1
            logger.warning("tracking backend %r did not close cleanly (%s)", self.name, _describe(error))

    def _note_failure(self, method: str, error: Exception) -> None:
        self.failures += 1
        self._failures_in_a_row += 1
        if self.failures == 1:
            logger.warning(
                "tracking backend %r failed in %s (%s); the run goes on", self.name, method, _describe(error)
            )
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            logger.warning(
                "tracking backend %r failed %d times in a row and is off now", self.name, self._failures_in_a_row
            )
            self.close()


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
