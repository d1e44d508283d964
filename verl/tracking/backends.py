# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Backends on this machine: the console and TensorBoard."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl.tracking.base import BACKENDS, Backend, RunInfo
from verl.utils.import_utils import optional_import
from verl.utils.metric.scalars import scalars, step_line


@BACKENDS.register("console")
class Console(Backend):
    """One line a step on standard output: `step:3 - name:value - …`."""

    def log(self, data: Mapping[str, Any], step: int) -> None:
        sys.stdout.write(step_line(data, step) + "\n")
        sys.stdout.flush()


@BACKENDS.register("tensorboard")
class TensorBoard(Backend):
    """Event files in `TENSORBOARD_DIR`, else in the run's `tensorboard/`; flushed at each step."""

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        module = optional_import("torch.utils.tensorboard", needed_for="trainer.logger=[tensorboard]")
        directory = tensorboard_dir(run)
        directory.mkdir(parents=True, exist_ok=True)
        # purge_step hides what a resumed run will write again.
        purge_step = None if run.resume_step is None else run.resume_step + 1
        self._writer = module.SummaryWriter(log_dir=str(directory), purge_step=purge_step)

    def log(self, data: Mapping[str, Any], step: int) -> None:
        for name, value in scalars(data).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def log_generations(self, samples: Sequence[Sequence[Any]], step: int) -> None:
        blocks = (
            f"**Input**\n\n{question}\n\n**Output**\n\n{answer}\n\n**Score** {score}"
            for question, answer, score in samples
        )
        self._writer.add_text("val/generations", "\n\n---\n\n".join(blocks), step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def tensorboard_dir(run: RunInfo) -> Path:
    """Where the event files of `run` go."""
    if directory := os.environ.get("TENSORBOARD_DIR"):
        return Path(directory).expanduser()
    if run.local_dir is not None:
        return run.local_dir / "tensorboard"
    return Path("tensorboard_log") / run.project_name / run.experiment_name
