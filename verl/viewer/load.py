# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rollout dumps from disk, filtered."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.errors import DataError

Record = dict[str, Any]


@dataclass(frozen=True)
class Filter:
    """Which records are wanted; None means any."""

    step: int | None = None
    uid: str | None = None
    max_score: float | None = None
    min_score: float | None = None
    text: str | None = None

    def wants(self, record: Record) -> bool:
        """Whether a record passes; one without a score fails every bound on it."""
        score = record.get("score")
        if self.step is not None and record.get("step") != self.step:
            return False
        if self.uid is not None and str(record.get("uid")) != self.uid:
            return False
        if self.max_score is not None and (score is None or score > self.max_score):
            return False
        if self.min_score is not None and (score is None or score < self.min_score):
            return False
        return self.text is None or self.text in f"{record.get('input', '')}{record.get('output', '')}"


def dump_files(path: Path) -> list[Path]:
    """The dumps at `path`: a file, a folder of `<step>.jsonl`, or a run with `rollouts/`; by step."""
    if path.is_file():
        return [path]
    folder = path / "rollouts" if (path / "rollouts").is_dir() else path
    files = [file for file in folder.glob("*.jsonl") if file.stem.isdigit()]
    if not files:
        raise DataError(
            "no rollout dump is here", where=str(path), expected="<step>.jsonl files, or a run with rollouts/"
        )
    return sorted(files, key=lambda file: int(file.stem))


def load(path: Path, wanted: Filter | None = None) -> Iterator[Record]:
    """Records of all dumps at `path` that pass the filter, in order of step."""
    wanted = wanted or Filter()
    for file in dump_files(path):
        if wanted.step is not None and file.stem.isdigit() and int(file.stem) != wanted.step:
            continue
        # Not splitlines: what a model wrote may hold other line separators.
        for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
            if not line:
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"a line is no JSON ({error})", where=f"{file}:{number}") from error
            if wanted.wants(record):
                yield record
