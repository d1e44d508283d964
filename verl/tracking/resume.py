# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A resumed run rolls back every step after its checkpoint; what was written about those steps goes with them."""

import re
from pathlib import Path

from verl.tracking.files import METRICS_FILE, cut_lines_after


def cut_after(
    local_dir: str | Path,
    *,
    version: int,
    step: int,
    rollout_dir: str | Path | None = None,
    validation_dir: str | Path | None = None,
) -> list[Path]:
    """Drop what lies behind a checkpoint of policy `version` and optimizer `step`; returns the paths changed.

    Metrics records and validation dumps count in versions, rollout dumps in optimizer steps. The directories are
    `trainer.rollout_data_dir` and `trainer.validation_data_dir`, by default `rollouts` and `validation` of the run.
    """
    local_dir = Path(local_dir)
    changed = [local_dir / METRICS_FILE] if cut_lines_after(local_dir / METRICS_FILE, version) else []
    changed += _remove_dumps(Path(rollout_dir or local_dir / "rollouts"), step)
    return changed + _remove_dumps(Path(validation_dir or local_dir / "validation"), version)


def _remove_dumps(directory: Path, last: int) -> list[Path]:
    late = [
        path for path in sorted(directory.glob("*.jsonl")) if re.fullmatch(r"\d+", path.stem) and int(path.stem) > last
    ]
    for path in late:
        path.unlink()
    return late
