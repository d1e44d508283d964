# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from verl.errors import DataError
from verl.tracking import dump_generations
from verl.viewer.__main__ import main
from verl.viewer.load import Filter, load


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for step in (2, 10):
        dump_generations(
            tmp_path / "rollouts",
            step,
            inputs=["1+1=", "2+2="],
            outputs=["2", "[bold]<b>\u2028 5"],
            gts=["2", "4"],
            scores=[1.0, 0.0],
            extras={"uid": ["a", "b"], "versions": [[1], [1, 2]]},
        )
    return tmp_path


def test_records_come_in_order_of_step_and_pass_the_filter(run_dir: Path) -> None:
    assert [(record["step"], record["uid"]) for record in load(run_dir)] == [(2, "a"), (2, "b"), (10, "a"), (10, "b")]
    assert [record["uid"] for record in load(run_dir, Filter(step=10, max_score=0.5))] == ["b"]
    assert [record["step"] for record in load(run_dir, Filter(uid="a", min_score=1))] == [2, 10]
    assert list(load(run_dir, Filter(text="7+7"))) == []


def test_what_a_model_wrote_is_shown_as_it_is(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run_dir), "--step", "2"]) == 0
    shown = capsys.readouterr().out
    assert "step 2 · uid b · score 0" in shown and "[bold]<b>" in shown and "versions=[1, 2]" in shown


def test_a_page_escapes_what_a_model_wrote(run_dir: Path, tmp_path: Path) -> None:
    assert main([str(run_dir), "--html", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert "[bold]&lt;b&gt;" in text and "<b>" not in text and text.count("<article") == 4


def test_an_empty_place_says_what_was_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match="no rollout dump"):
        list(load(tmp_path))
    assert main([str(tmp_path)]) == 1
    assert "no rollout dump" in capsys.readouterr().err
