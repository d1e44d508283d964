# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from verl.errors import DataError
from verl.tracking import dump_generations


def test_each_line_carries_every_field_and_groups_stand_together(tmp_path: Path) -> None:
    path = dump_generations(
        tmp_path,
        7,
        inputs=["q1", "q2", "q1", "q2"],
        outputs=["a", "b", "c", "d"],
        gts=["a", "d", "a", "d"],
        scores=torch.tensor([1.0, 0.0, 0.0, 1.0]),
        extras={
            "uid": np.array(["u1", "u2", "u1", "u2"], dtype=object),
            "request_id": ["r0", "r1", "r2", "r3"],
            "acc": np.array([True, False, False, True]),
            "pred": ["a", "b", float("nan"), np.int64(4)],
        },
    )
    assert path == tmp_path / "7.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["uid"] for line in lines] == ["u1", "u1", "u2", "u2"]
    assert [line["request_id"] for line in lines] == ["r0", "r2", "r1", "r3"]
    assert lines[0] == {
        "input": "q1", "output": "a", "gts": "a", "score": 1.0, "uid": "u1",
        "request_id": "r0", "acc": True, "pred": "a", "step": 7,
    }  # fmt: skip
    assert lines[1]["pred"] is None and lines[3]["pred"] == 4


def test_a_column_of_another_length_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"acc.*got 1, expected 2"):
        dump_generations(
            tmp_path, 1, inputs=["a", "b"], outputs=["a", "b"], gts=["", ""], scores=[0, 0], extras={"acc": [1]}
        )
    assert list(tmp_path.iterdir()) == []


def test_a_step_written_again_replaces_its_file_whole(tmp_path: Path) -> None:
    for outputs in (["long answer", "second"], ["x"]):
        n = len(outputs)
        dump_generations(tmp_path, 1, inputs=["q"] * n, outputs=outputs, gts=[""] * n, scores=[0.0] * n)
    assert [json.loads(line)["output"] for line in (tmp_path / "1.jsonl").read_text().splitlines()] == ["x"]
    assert [path.name for path in tmp_path.iterdir()] == ["1.jsonl"]
