# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Answers to a file of prompts: the same rows, a list of answers beside each, and a file only when it is complete."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl.config import DataConfig
from verl.config.front_door import load
from verl.errors import ConfigError, DataError
from verl.quickstart.model import build_tokenizer
from verl.trainer.main_generation_server import for_generation, read_prompts, tokenized, write_answers


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.parquet"
    rows = [{"prompt": [{"role": "user", "content": f"{n}+1="}], "kept": n} for n in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_the_answers_stand_beside_their_rows_and_older_ones_are_replaced(prompts: Path, tmp_path: Path) -> None:
    data, path = DataConfig(train_files=str(prompts)), tmp_path / "new" / "answers.parquet"
    for answers in ([["a", "b"], ["c", "d"], ["e", "f"]], [["x"], ["y"], ["z"]]):
        write_answers(read_prompts(data), answers, path)
        data = DataConfig(train_files=str(path))
    table = pq.read_table(path)
    assert table.column_names == ["prompt", "kept", "responses"]
    assert table["responses"].to_pylist() == [["x"], ["y"], ["z"]] and table["kept"].to_pylist() == [0, 1, 2]
    assert os.listdir(path.parent) == ["answers.parquet"]


def test_only_as_many_rows_are_read_as_asked_for(prompts: Path) -> None:
    assert len(read_prompts(DataConfig(train_files=str(prompts), train_max_samples=2))) == 2


def test_a_missing_column_names_file_columns_and_key(prompts: Path) -> None:
    with pytest.raises(DataError, match=r"prompts\.parquet.*data\.prompt_key") as caught:
        read_prompts(DataConfig(train_files=str(prompts), prompt_key="question"))
    assert "kept" in str(caught.value)


def test_prompts_are_rendered_as_the_rollout_sends_them(prompts: Path) -> None:
    tokenizer = build_tokenizer()
    data = DataConfig(train_files=str(prompts))
    assert [tokenizer.decode(ids) for ids in tokenized(read_prompts(data), data, tokenizer)] == ["0+1=", "1+1=", "2+1="]


def test_a_prompt_that_is_too_long_names_its_row(prompts: Path) -> None:
    data = DataConfig(train_files=str(prompts), max_prompt_length=3)
    with pytest.raises(DataError, match=r"row 0.*4 tokens.*at most data\.max_prompt_length=3"):
        tokenized(read_prompts(data), data, build_tokenizer())


def test_the_servers_take_the_trainers_devices_and_the_models_own_weights(tmp_path: Path) -> None:
    config, _ = load(
        [f"+data.output_path={tmp_path}/a.parquet", "trainer.nnodes=2", "trainer.n_gpus_per_node=4"],
        "verl.trainer.config",
        "ppo_trainer",
    )
    config = for_generation(config)
    assert config.rollout is not None and config.rollout.num_devices == 8
    assert config.actor_rollout_ref.rollout.load_format == "auto"


def test_no_place_for_the_answers_is_refused() -> None:
    config, _ = load([], "verl.trainer.config", "ppo_trainer")
    with pytest.raises(ConfigError, match=r"data\.output_path"):
        for_generation(config)
