# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A file of answers scored by the built-in functions and by one's own."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl.trainer.main_eval import main

GSM8K = "openai/gsm8k"


def answers(tmp_path: Path, **columns: list) -> Path:
    rows = {
        "data_source": [GSM8K, GSM8K, "other"],
        "responses": [["#### 1", "#### 2"], ["#### 3", "#### 3"], ["#### 4"]],
        "reward_model": [{"ground_truth": truth} for truth in ("1", "3", "4")],
    } | columns
    path = tmp_path / "answers.parquet"
    pq.write_table(pa.table(rows), path)
    return path


def test_each_prompt_counts_once_however_many_answers_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture
) -> None:
    assert main([f"data.path={answers(tmp_path)}"]) == 0
    # Half of the first prompt's answers and all of the second's are right; nobody knows how to score the third.
    assert json.loads(capsys.readouterr().out) == {f"test_score/{GSM8K}": 0.75, "num_errors/other": 1.0}


def test_a_function_of_ones_own_is_called_as_in_training(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def length(data_source, solution_str, ground_truth, extra_info=None, unit=1):\n"
        "    return {'score': len(solution_str) * unit}\n"
    )
    function = [f"custom_reward_function.path={file}", "custom_reward_function.name=length"]
    path = answers(tmp_path, responses=["ab", "abcd", "abc"])
    assert main([f"data.path={path}", *function, "+custom_reward_function.reward_kwargs.unit=10"]) == 0
    assert json.loads(capsys.readouterr().out) == {f"test_score/{GSM8K}": 30.0, "test_score/other": 30.0}


def test_what_is_wrong_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([f"data.path={tmp_path / 'none.parquet'}"]) != 0
    assert "data.path" in capsys.readouterr().err
    assert main([f"data.path={answers(tmp_path)}", "data.response_key=answer"]) != 0
    assert "no columns ['answer']" in capsys.readouterr().err
    path = answers(tmp_path, reward_model=[{"style": "rule"}] * 3)
    assert main([f"data.path={path}"]) != 0
    assert "row 0, column reward_model" in capsys.readouterr().err
    assert main([f"data.path={answers(tmp_path, data_source=['other'] * 3)}"]) == 1
