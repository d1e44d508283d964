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
    for directory in (tmp_path / "rollouts", tmp_path / "validation", outside):
        for step in (2, 10):
            dump_generations(directory, step, **columns)
    (tmp_path / "rollouts" / "notes.jsonl").write_text("mine\n")
    changed = cut_after(tmp_path, 9, dump_dirs=[outside])
    assert len(changed) == 3
    for directory in (tmp_path / "rollouts", tmp_path / "validation", outside):
        assert (directory / "2.jsonl").exists() and not (directory / "10.jsonl").exists()
    assert (tmp_path / "rollouts" / "notes.jsonl").exists()


@pytest.mark.parametrize("last_step", [0, 100])
def test_cutting_a_fresh_directory_is_nothing(tmp_path: Path, last_step: int) -> None:
    assert cut_after(tmp_path, last_step) == []
