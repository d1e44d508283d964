# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A resumed run rolls back every step after its checkpoint; what was written about those steps goes with them."""

import re
from collections.abc import Iterable
from pathlib import Path

from verl.tracking.files import METRICS_FILE, cut_lines_after

DUMP_DIRECTORIES = ("rollouts", "validation")


def cut_after(local_dir: str | Path, last_step: int, dump_dirs: Iterable[str | Path] = ()) -> list[Path]:
    """Drop metrics lines and dump files of steps after `last_step`; returns the paths that were changed.

    `dump_dirs` are `trainer.rollout_data_dir` and `trainer.validation_data_dir` where they lie outside `local_dir`.
    """
    local_dir = Path(local_dir)
    changed = []
    if cut_lines_after(local_dir / METRICS_FILE, last_step):
        changed.append(local_dir / METRICS_FILE)
    directories = {Path(item) for item in (*(local_dir / name for name in DUMP_DIRECTORIES), *dump_dirs)}
    for path in sorted(file for directory in directories for file in directory.glob("*.jsonl")):
        if re.fullmatch(r"\d+", path.stem) and int(path.stem) > last_step:
            path.unlink()
            changed.append(path)
    return changed
