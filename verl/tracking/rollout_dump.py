# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rollouts and validation answers to `<directory>/<step>.jsonl`, one trajectory a line, for the viewer and for grep."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl.errors import DataError
from verl.utils.json_utils import dumps


def dump_generations(
    directory: str | Path,
    step: int,
    *,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    gts: Sequence[Any],
    scores: Sequence[Any],
    extras: Mapping[str, Sequence[Any]] | None = None,
) -> Path:
    """Write the trajectories of `step`, those of one prompt (equal `uid` in `extras`) side by side; returns the file.

    Each line has input, output, gts, score, step and one field for each column of `extras` (uid, request_id,
    policy version, reward extras …).

    Raises
    ------
    DataError
        names a column whose length is not the number of trajectories.
    """
    columns = {"input": inputs, "output": outputs, "gts": gts, "score": scores, **(extras or {})}
    for name, values in columns.items():
        if len(values) != len(inputs):
            raise DataError(
                "a column has another length", where=f"rollout dump, {name}", got=len(values), expected=len(inputs)
            )
    columns["step"] = [step] * len(inputs)
    lines = [dumps({name: values[i] for name, values in columns.items()}) for i in _grouped(columns, len(inputs))]
    return _replace(Path(directory) / f"{step}.jsonl", "".join(line + "\n" for line in lines))


def _grouped(columns: Mapping[str, Sequence[Any]], count: int) -> list[int]:
    uids = columns.get("uid")
    if uids is None:
        return list(range(count))
    first_seen: dict[str, int] = {}
    for index in range(count):
        first_seen.setdefault(str(uids[index]), index)
    return sorted(range(count), key=lambda index: first_seen[str(uids[index])])


def _replace(path: Path, text: str) -> Path:
    # By rename, so that a reader or a kill never meets half a file.
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8", errors="backslashreplace")
    draft.replace(path)
    return path
