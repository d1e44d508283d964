# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Loss masks of conversations, token by token; pairs for reward models."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from word_tokenizer import TEMPLATE, word_tokenizer

from verl.errors import ConfigError, DataError, UnsupportedError
from verl.utils.chat_template import apply_chat_template
from verl.utils.dataset import MultiTurnSFTDataset, RMDataset
from verl.utils.dataset.dataset_utils import SFTTensorCollator

CHAT = [
    {"role": "system", "content": "w1"},
    {"role": "user", "content": "w2 w3"},
    {"role": "assistant", "content": "w4 w5"},
    {"role": "tool", "content": "w6"},
    {"role": "tool", "content": "w7"},
    {"role": "assistant", "content": "w8"},
]


def load(tmp_path: Path, *rows: dict[str, Any], template: str = TEMPLATE, **config: Any) -> MultiTurnSFTDataset:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return MultiTurnSFTDataset(str(path), word_tokenizer(template), OmegaConf.create({"max_length": 64} | config))


def trained(dataset: MultiTurnSFTDataset, item: int = 0) -> str:
    row = dataset[item]
    return dataset.tokenizer.decode(row["input_ids"][row["loss_mask"].bool()])


def test_only_what_the_assistant_writes_is_trained(tmp_path: Path) -> None:
    dataset = load(tmp_path, {"messages": CHAT}, pad_mode="no_padding")
    row = dataset[0]
    assert row["input_ids"].tolist() == apply_chat_template(dataset.tokenizer, CHAT, add_generation_prompt=False)
    # Content, closing token, and the newline that the template puts behind it; never "assistant:".
    words = trained(dataset).split()
    assert words == ["w4", "w5", "<end>", "w8", "<end>"]
    assert row["position_ids"].tolist() == list(range(len(row["input_ids"])))


def test_a_conversation_may_end_with_the_user_or_begin_with_the_assistant(tmp_path: Path) -> None:
    rows = [{"messages": CHAT[:2]}, {"messages": CHAT[2:4]}]
    dataset = load(tmp_path, *rows, pad_mode="no_padding")
    assert trained(dataset, 0) == ""
    assert trained(dataset, 1).split() == ["w4", "w5", "<end>"]


def test_tools_and_thinking_of_a_row_reach_the_template(tmp_path: Path) -> None:
    template = "{% if enable_thinking %}one {% endif %}" + TEMPLATE
    tools = [{"type": "function", "function": {"name": "calculator"}}]
    rows = [{"messages": CHAT, "tools": tools, "enable_thinking": True}, {"messages": CHAT}]
    dataset = load(tmp_path, *rows, template=template, pad_mode="no_padding")
    text = dataset.tokenizer.decode(dataset[0]["input_ids"])
    assert text.startswith("one tool calculator") and "calculator" not in dataset.tokenizer.decode(
        dataset[1]["input_ids"]
    )
    assert trained(dataset, 0) == trained(dataset, 1)


def test_padding_and_truncation(tmp_path: Path) -> None:
    whole = len(load(tmp_path, {"messages": CHAT}, pad_mode="no_padding")[0]["input_ids"])
    padded = load(tmp_path, {"messages": CHAT}, max_length=whole + 3)[0]
    assert padded["attention_mask"].tolist() == [1] * whole + [0] * 3
    assert padded["input_ids"][-3:].tolist() == [0] * 3 and padded["loss_mask"][-3:].sum() == 0
    full = load(tmp_path, {"messages": CHAT}, max_length=whole)[0]["input_ids"].tolist()
    for side, kept in (("left", full[-5:]), ("right", full[:5])):
        assert load(tmp_path, {"messages": CHAT}, max_length=5, truncation=side)[0]["input_ids"].tolist() == kept
    with pytest.raises(DataError, match=rf"row 0.*{whole} tokens.*max_length=5"):
        load(tmp_path, {"messages": CHAT}, max_length=5)[0]


def test_a_template_that_rewrites_history_is_refused_unless_allowed(tmp_path: Path) -> None:
    template = "{{ messages | length }} " + TEMPLATE
    with pytest.raises(DataError, match=r"row 0.*ignore_input_ids_mismatch"):
        load(tmp_path, {"messages": CHAT}, template=template)[0]
    allowed = load(tmp_path, {"messages": CHAT}, template=template, ignore_input_ids_mismatch=True)
    assert "w8" in trained(allowed)


# As reasoning models have it: thoughts stand only behind the last user message; a prompt may close an empty one.
FORGETFUL = (
    "{% set ns = namespace(last=-1) %}{% for message in messages %}{% if message.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for message in messages %}{{ message.role }}: {% if message.thought and loop.index0 > ns.last %}a "
    "{{ message.thought }} b {% endif %}{{ message.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% if enable_thinking is false %}a b {% endif %}{% endif %}"
)
THOUGHTS = [
    {"role": "user", "content": "w1"},
    {"role": "assistant", "content": "w2", "thought": "w3"},
    {"role": "tool", "content": "w4"},
    {"role": "assistant", "content": "w5", "thought": "w6"},
    {"role": "user", "content": "w7 w8"},
    {"role": "assistant", "content": "w9", "thought": "w10"},
]


def test_each_turn_of_a_template_that_drops_old_thoughts_stands_as_it_was_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 0.*ignore_input_ids_mismatch"):
        load(tmp_path, {"messages": THOUGHTS}, template=FORGETFUL)[0]
    dataset = load(tmp_path, {"messages": THOUGHTS}, template=FORGETFUL, ignore_input_ids_mismatch=True)
    assert " ".join(trained(dataset).split()) == "a w3 b w2 <end> a w6 b w5 <end> a w10 b w9 <end>"
    text = dataset.tokenizer.decode(dataset[0]["input_ids"][dataset[0]["attention_mask"].bool()])
    assert " ".join(text.split()) == (
        "user : w1 <end> assistant : a w3 b w2 <end> tool : w4 <end> assistant : a w6 b w5 <end> "
        "user : w7 w8 <end> assistant : a w10 b w9 <end>"
    )
    # With one question nothing is dropped, and nothing needs to be allowed.
    kept = trained(load(tmp_path, {"messages": THOUGHTS[:4]}, template=FORGETFUL))
    assert " ".join(kept.split()) == "a w3 b w2 <end> a w6 b w5 <end>"


def test_a_prompt_that_closes_an_empty_thought_masks_nothing_of_the_answer(tmp_path: Path) -> None:
    dataset = load(tmp_path, {"messages": CHAT[1:3], "enable_thinking": False}, template=FORGETFUL)
    assert trained(dataset).split() == ["w4", "w5", "<end>"]


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column 'messages'"):
        load(tmp_path, {"text": "x"})
    with pytest.raises(DataError, match="conversation is empty"):
        load(tmp_path, {"messages": []})[0]
    with pytest.raises(UnsupportedError, match="pad_mode"):
        load(tmp_path, {"messages": CHAT}, pad_mode="left_right")
    with pytest.raises(ConfigError, match=r"data\.truncation"):
        load(tmp_path, {"messages": CHAT}, truncation="middle")


def test_rows_of_their_own_length_make_a_jagged_batch(tmp_path: Path) -> None:
    dataset = load(tmp_path, {"messages": CHAT}, {"messages": CHAT[:3]}, pad_mode="no_padding")
    batch = SFTTensorCollator("no_padding")([dataset[0], dataset[1]])
    assert [len(row) for row in batch["input_ids"].unbind()] == [
        len(dataset[0]["input_ids"]),
        len(dataset[1]["input_ids"]),
    ]
    stacked = SFTTensorCollator("right")([{"x": torch.ones(2)}, {"x": torch.ones(2)}])
    assert stacked["x"].shape == (2, 2)


def test_pairs_are_the_better_answer_and_then_the_worse(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [{"prompt": "w1 ", "chosen": "w2 w3", "rejected": "w4"}] * 3
    path.write_text("\n".join(map(json.dumps, rows)))
    dataset = RMDataset(str(path), word_tokenizer(), max_length=4, max_samples=2)
    ids = dataset.tokenizer.convert_tokens_to_ids
    assert len(dataset) == 2
    assert dataset[0]["input_ids"].tolist() == [ids(["w1", "w2", "w3", "<end>"]), ids(["w1", "w4", "<end>", "<pad>"])]
    assert dataset[0]["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    with pytest.raises(DataError, match="no columns"):
        RMDataset(str(path), word_tokenizer(), chosen_key="better")
