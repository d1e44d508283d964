# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from verl.tracking import Tracking, cut_after, dump_generations, read_metrics


def config(tmp_path: Path) -> dict:
    return {"trainer": {"default_local_dir": str(tmp_path)}}


def test_metrics_after_the_checkpoint_are_dropped_and_written_again(tmp_path: Path) -> None:
    with Tracking("p", "e", ["tensorboard"], config(tmp_path)) as tracking:
        for step in range(1, 6):
            tracking.log({"x": step}, step)
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 6, "da')
    with Tracking("p", "e", ["tensorboard"], config(tmp_path), resume_step=3) as tracking:
        tracking.log({"x": 40}, 4)
    assert [(r["step"], r["data"]["x"]) for r in read_metrics(tmp_path / "metrics.jsonl")] == [
        (1, 1), (2, 2), (3, 3), (4, 40),
    ]  # fmt: skip
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("x")] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0)]


def test_dumps_after_the_checkpoint_are_removed_and_earlier_ones_stay(tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    columns = {"inputs": ["q"], "outputs": ["a"], "gts": ["a"], "scores": [1.0]}
    for directory in (outside, tmp_path / "validation"):
        for number in (2, 5, 10):
            dump_generations(directory, number, **columns)
    (outside / "notes.jsonl").write_text("mine\n")
    # Two optimizer steps for each version: rollouts are named by step, validation by version.
    changed = cut_after(tmp_path, version=4, step=8, rollout_dir=outside)
    assert [path.name for path in changed] == ["10.jsonl", "10.jsonl", "5.jsonl"]
    assert sorted(path.name for path in outside.iterdir()) == ["2.jsonl", "5.jsonl", "notes.jsonl"]
    assert [path.name for path in (tmp_path / "validation").iterdir()] == ["2.jsonl"]


@pytest.mark.parametrize("last", [0, 100])
def test_cutting_a_fresh_directory_is_nothing(tmp_path: Path, last: int) -> None:
    assert cut_after(tmp_path, version=last, step=last) == []
