# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics as JSON lines: `{"step", "time_s", "data"}`, one line a step, on disk when `log` returns."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from verl.tracking.base import BACKENDS, Backend, RunInfo
from verl.utils.json_utils import dumps

METRICS_FILE = "metrics.jsonl"
# Upstream's names: the whole path, or a root below which the file is `<project>/<experiment>.jsonl`.
PATH_ENV, ROOT_ENV = "VERL_FILE_LOGGER_PATH", "VERL_FILE_LOGGER_ROOT"


class JsonLines(Backend):
    """One file of metrics; a resumed run first drops what the checkpoint rolled back."""

    def __init__(self, run: RunInfo, path: Path) -> None:
        super().__init__(run)
        self.path = path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if run.resume_step is not None:
            cut_lines_after(self.path, run.resume_step)
        self._stream: TextIO = self.path.open("a", encoding="utf-8", errors="backslashreplace")

    def log(self, data: Mapping[str, Any], step: int) -> None:
        self._stream.write(dumps({"step": step, "time_s": time.time(), "data": data}) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


@BACKENDS.register("file")
def asked_file(run: RunInfo) -> JsonLines:
    """The file that the environment names; without a name `<project>/<experiment>.jsonl` here."""
    return JsonLines(run, path_from_environment(run))


def file_is_asked_elsewhere() -> bool:
    """Whether the environment names a place for the file logger."""
    return bool(os.environ.get(PATH_ENV) or os.environ.get(ROOT_ENV))


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Records of a metrics file in order; a line torn by a kill is left out."""
    path = Path(path)
    return [record for _, record in _lines(path) if record is not None] if path.exists() else []


def cut_lines_after(path: Path, last_step: int) -> int:
    """Drop records of steps after `last_step` and torn lines, by rename; returns how many lines went."""
    if not path.exists():
        return 0
    lines = _lines(path)
    kept = [line for line, record in lines if record is not None and record.get("step", 0) <= last_step]
    if len(kept) < len(lines):
        draft = path.with_name(path.name + ".cut")
        draft.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        draft.replace(path)
    return len(lines) - len(kept)


def _lines(path: Path) -> list[tuple[str, dict[str, Any] | None]]:
    # Not splitlines: a text value may hold other line separators, which JSON leaves as they are.
    return [(line, _parse(line)) for line in path.read_text(encoding="utf-8").split("\n") if line]


def _parse(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def path_from_environment(run: RunInfo) -> Path:
    if path := os.environ.get(PATH_ENV):
        return Path(path).expanduser()
    root = Path(os.environ.get(ROOT_ENV, ".")).expanduser()
    return root / run.project_name / f"{run.experiment_name}.jsonl"
