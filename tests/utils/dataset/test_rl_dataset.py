# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rows in, from every kind of file, and what is refused."""

import io
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image
from word_tokenizer import BARE, word_tokenizer

from verl.errors import ConfigError, DataError, UnsupportedError
from verl.protocol import DataProto
from verl.utils.dataset import RLHFDataset
from verl.utils.dataset.rl_dataset import collate_fn, create_rl_dataset, get_dataset_class

TOOL = {
    "class_name": "verl.tools.base_tool.BaseTool",
    "config": {"type": "native"},
    "tool_schema": {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": "adds",
            "parameters": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
        },
    },
}


def row(text: str = "w1 w2", index: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "data_source": "sums",
        "prompt": [{"role": "user", "content": text}],
        "reward_model": {"style": "rule", "ground_truth": "3"},
        "extra_info": {"index": index, "split": "train"},
    } | more


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    if path.suffix.lower() == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix.lower() == ".jsonl":
        path.write_text("\n".join(json.dumps(item) for item in rows) + "\n")
    else:
        path.write_text(json.dumps(rows))
    return str(path)


def load(files: Any, template: str = BARE, processor: Any = None, max_samples: int = -1, **config: Any) -> RLHFDataset:
    options = OmegaConf.create({"max_prompt_length": 20, "truncation": "error"} | config)
    return RLHFDataset(files, word_tokenizer(template), options, processor, max_samples=max_samples)


def test_the_same_rows_come_from_every_kind_of_file(tmp_path: Path) -> None:
    rows = [row(f"w{index}", index) for index in range(3)]
    names = ["a.parquet", "a.json", "a.jsonl", "A.JSONL"]
    datasets = [load(write(tmp_path / name, rows)) for name in names]
    assert [len(dataset) for dataset in datasets] == [3] * 4
    first = [{key: value for key, value in dataset[0].items() if key != "dummy_tensor"} for dataset in datasets]
    assert first[0] == first[1] == first[2] == first[3]
    assert first[0]["raw_prompt"] == [{"role": "user", "content": "w0"}] and "prompt" not in first[0]
    assert len(load([str(tmp_path / "a.parquet"), str(tmp_path / "a.jsonl")])) == 6
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(DataError, match=r"\.csv"):
        load(str(tmp_path / "a.csv"))


def test_a_line_separator_inside_a_string_ends_no_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row("w1\u2028w2"), ensure_ascii=False) + "\n", encoding="utf-8")
    assert load(str(path))[0]["raw_prompt"][0]["content"] == "w1\u2028w2"


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row()) + "\n\n{broken\n")
    with pytest.raises(DataError, match=r"a\.jsonl.*line 3: Expecting"):
        load(str(path))


def test_lists_patterns_directories_spaces_and_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my data"
    folder.mkdir()
    for index, name in enumerate(["b.parquet", "a.parquet"]):
        write(folder / name, [row(f"w{index}", index)])
    (folder / "notes.txt").write_text("not rows")
    assert [item["index"] for item in (load(f"{folder}/*.parquet")[i] for i in range(2))] == [1, 0]
    assert len(load(str(folder))) == 2
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(load("~/my data/a.parquet")) == 1
    with pytest.raises(DataError, match=r"no\*match\.parquet"):
        load(f"{folder}/no*match.parquet")
    with pytest.raises(DataError, match="no such file"):
        load(str(folder / "absent.parquet"))
    absent = str(folder / "absent.parquet")
    for key in ("train_files", "val_files"):
        with pytest.raises(DataError, match=rf"data\.{key}: no such file"):
            load(absent, **{key: absent})
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no file"):
        load(str(tmp_path / "empty"))


def test_max_samples(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [row(f"w{index}", index) for index in range(10)])

    def kept(count: int, **config: Any) -> list[int]:
        dataset = load(path, max_samples=count, **config)
        return [dataset[index]["index"] for index in range(len(dataset))]

    assert kept(3) == [0, 1, 2]
    assert len(kept(-1)) == len(kept(99)) == 10
    assert kept(4, shuffle=True, seed=7) == np.random.default_rng(7).choice(10, 4, replace=False).tolist()
    with pytest.raises(ConfigError, match="max_samples is 0"):
        kept(0)


@pytest.mark.parametrize("text", ["[1, 2]", '["a"]', "{broken", '[{"prompt": 1}, {"prompt": "a"}]'])
def test_a_file_that_holds_no_rows_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"odd\.json: the file cannot be read"):
        load(str(path))


def test_a_file_without_the_prompt_column_says_which_columns_it_has(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'question'.*data_source.*data\.prompt_key"):
        load(write(tmp_path / "a.parquet", [row()]), prompt_key="question")
    broken = write(tmp_path / "b.json", [row() | {"prompt": "just text"}])
    with pytest.raises(DataError, match="row 0, column prompt"):
        load(broken)[0]


def picture() -> dict[str, bytes]:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(buffer, "PNG")
    return {"bytes": buffer.getvalue()}


def test_rows_with_and_without_images_mix(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [row("<image>hi", images=[picture()]), row("hi", images=[]), row("hi", images=None)]
    write(path, rows)
    dataset = load(str(path))
    parts = [dataset[index]["raw_prompt"][0]["content"] for index in range(3)]
    assert [part["type"] for part in parts[0]] == ["image", "text"] and parts[0][1]["text"] == "hi"
    assert parts[1] == parts[2] == "hi"
    assert "images" not in dataset[0]
    write(path, [row("hi", images=None), row("<image><image>", images=[picture()])])
    with pytest.raises(DataError, match=r"row 1: the text has 2 <image> and the row 1"):
        load(str(path))[1]
    # Without a column of images the text means itself.
    assert load(write(tmp_path / "b.parquet", [row("<image>")]))[0]["raw_prompt"][0]["content"] == "<image>"


def test_columns_are_flat_object_arrays_however_even_their_entries() -> None:
    batch = collate_fn(
        [{"k": [1, 2], "m": [{"a": 1}], "t": torch.ones(2)}, {"k": [3, 4], "m": [{"a": 2}], "t": torch.ones(2)}]
    )
    assert batch["k"].shape == (2,) and batch["k"].dtype == object and batch["k"][0] == [1, 2]
    assert batch["m"].shape == (2,) and batch["t"].shape == (2, 2)
    other = collate_fn([{"k": [1], "m": [], "t": torch.ones(2)}, {"k": [2, 3, 4], "m": [], "t": torch.ones(2)}])
    both = DataProto.concat([DataProto.from_single_dict(batch), DataProto.from_single_dict(other)])
    assert both.non_tensor_batch["k"].tolist() == [[1, 2], [3, 4], [1], [2, 3, 4]]


def test_the_filter_counts_what_the_rollout_sends(tmp_path: Path) -> None:
    tools = tmp_path / "tools.yaml"
    OmegaConf.save(OmegaConf.create({"tools": [TOOL]}), tools)
    path = write(tmp_path / "a.parquet", [row(" ".join(f"w{i}" for i in range(15))), row("w1")])
    assert len(load(path, filter_overlong_prompts=True)) == 2
    with_tool = load(path, filter_overlong_prompts=True, tool_config_path=str(tools))
    assert [with_tool[index]["raw_prompt"][0]["content"] for index in range(len(with_tool))] == ["w1"]
    assert with_tool.prompt_length(row(" ".join(f"w{i}" for i in range(15))), 0) == 25
    # What the user hands to the template counts too.
    longer = BARE + "{% if thinking %}one two three four five six{% endif %}"
    for thinking, kept in ((False, 2), (True, 1)):
        options = {"filter_overlong_prompts": True, "apply_chat_template_kwargs": {"thinking": thinking}}
        assert len(load(path, longer, **options)) == kept
    with pytest.raises(DataError, match="every prompt is too long"):
        load(path, filter_overlong_prompts=True, max_prompt_length=0)
    assert len(load(path, filter_overlong_prompts=True, filter_overlong_prompts_workers=2, max_prompt_length=3)) == 1


def test_missing_tools_kwargs_are_one_readable_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = load(write(tmp_path / "a.parquet", [row(extra_info={"index": 4, "need_tools_kwargs": True})]))
    with caplog.at_level(logging.WARNING):
        item = dataset[0]
    assert [record.getMessage() for record in caplog.records] == ["row 0 of sums needs tools_kwargs and has none"]
    assert item["tools_kwargs"] == {} and item["index"] == 4


def test_nested_values_are_plain_python(tmp_path: Path) -> None:
    template = "{% if tools %}yes{% endif %}{% for message in messages %}{{ message.content }}{% endfor %}"
    rows = [
        row(
            tools=[{"name": "x"}],
            enable_thinking=True,
            extra_info={"index": 1, "tools_kwargs": {"a": {"k": [1]}, "b": None}},
        )
    ]
    dataset = load(write(tmp_path / "a.parquet", rows), template=template)
    item = dataset[0]

    def check(value: Any) -> None:
        assert not isinstance(value, np.generic | np.ndarray)
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            check(inner)

    for key, value in item.items():
        if key != "dummy_tensor":
            check(value)
    assert item["tools_kwargs"] == {"a": {"k": [1]}}
    rendered = dataset.tokenizer.apply_chat_template(item["raw_prompt"], tools=item["tools"], tokenize=False)
    assert rendered.startswith("yes")


def test_a_custom_class_is_loaded_and_checked(tmp_path: Path) -> None:
    source = tmp_path / "my dataset.py"
    source.write_text(
        "from verl.utils.dataset import RLHFDataset\n"
        "class Mine(RLHFDataset):\n"
        "    def __getitem__(self, item):\n"
        "        return super().__getitem__(item) | {'mine': True}\n"
        "class NoDataset: pass\n"
    )
    config = OmegaConf.create({"custom_cls": {"path": str(source), "name": "Mine"}, "max_prompt_length": 9})
    dataset = create_rl_dataset(write(tmp_path / "a.parquet", [row()]), config, word_tokenizer(BARE), None)
    assert dataset[0]["mine"]
    config.custom_cls.name = "NoDataset"
    with pytest.raises(ConfigError, match="not a torch Dataset"):
        get_dataset_class(config)
    with pytest.raises(UnsupportedError, match=r"data\.datagen"):
        get_dataset_class(OmegaConf.create({"datagen": {"path": "x.py"}}))


def test_split_leaves_the_remainder_out(tmp_path: Path) -> None:
    dataset = load(write(tmp_path / "a.parquet", [row(f"w{index}", index) for index in range(7)]))
    parts = dataset.split(3)
    assert [[part[index]["index"] for index in range(len(part))] for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert len(dataset) == 7
    with pytest.raises(ConfigError):
        dataset.split(8)


def test_files_whose_columns_disagree_are_named(tmp_path: Path) -> None:
    a = write(tmp_path / "a.parquet", [row(extra="text")])
    b = write(tmp_path / "b.parquet", [row(extra={"x": 1})])
    with pytest.raises(DataError, match=r"different types.*a\.parquet|a\.parquet.*different types"):
        load([a, b])
