# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tool calls out of text, in three formats; model text is never run."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from verl.errors import ConfigError
from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser, typed_value
from verl.tools.schemas import OpenAIFunctionToolSchema

TOOLS = [
    OpenAIFunctionToolSchema.model_validate(
        {
            "type": "function",
            "function": {
                "name": "search",
                "description": "",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string"},
                        "top": {"type": "integer"},
                        "ratio": {"type": "number"},
                        "flags": {"type": "array"},
                        "deep": {"type": "boolean"},
                        "filter": {"type": "object"},
                        "maybe": {"type": ["integer", "null"]},
                    },
                    "required": ["query"],
                },
            },
        }
    )
]


class Text:
    """A tokenizer whose ids are code points."""

    pad_token_id = 0
    eos_token_id = 1

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, ids))


def parse(name: str, text: str) -> tuple[str, list[FunctionCall]]:
    parser = ToolParser.get_tool_parser(name, Text())
    return asyncio.run(parser.extract_tool_calls([ord(letter) for letter in text], TOOLS))


def arguments(calls: list[FunctionCall]) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in calls]


def test_hermes() -> None:
    text = (
        'I look.<tool_call>{"name": "search", "arguments": {"query": "größe 你"}}</tool_call> and'
        '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>'
    )
    content, calls = parse("hermes", text)
    assert arguments(calls) == [("search", {"query": "größe 你"}), ("search", {})]
    assert content == "I look. and"


@pytest.mark.parametrize(
    "text",
    ["plain", "<tool_call>{broken</tool_call>", '<tool_call>{"name": "x"}</tool_call>', "<tool_call>[1]</tool_call>"],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert parse("hermes", text) == (text, [])


def test_gpt_oss_reads_the_recipient_on_either_side_and_no_thoughts() -> None:
    text = (
        "<|channel|>analysis<|message|>I might write <|channel|>commentary to=functions.no<|message|>{}<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>"
        '{"query": "a"}<|call|>'
        '<|start|>assistant to=functions.search<|channel|>commentary json<|message|>{"query": "b"}<|call|>'
    )
    _, calls = parse("gpt-oss", text)
    assert arguments(calls) == [("search", {"query": "a"}), ("search", {"query": "b"})]
    assert parse("gpt-oss", "<|channel|>final<|message|>done")[1] == []
    assert parse("gpt-oss", "<|channel|>commentary to=functions.f<|message|>not json<|call|>")[1] == []


def test_qwen3_coder_reads_values_by_their_schema() -> None:
    text = (
        "Well.<tool_call>\n<function=search>\n<parameter=query>\n12\n</parameter>\n<parameter=top>\n3\n</parameter>\n"
        "<parameter=ratio>0.5</parameter><parameter=flags>[1, 2]</parameter><parameter=deep>True</parameter>"
        "<parameter=filter>{'a': 1}</parameter><parameter=maybe>null</parameter>\n</function>\n</tool_call>"
    )
    content, calls = parse("qwen3_coder", text)
    expected = {"query": "12", "top": 3, "ratio": 0.5, "flags": [1, 2], "deep": True, "filter": {"a": 1}, "maybe": None}
    assert arguments(calls) == [("search", expected)] and content == "Well."
    # An unclosed end, as at the token limit, and a function that nobody knows.
    _, calls = parse("qwen3_coder", "<tool_call><function=other><parameter=x>1</parameter><parameter=y>2")
    assert arguments(calls) == [("other", {"x": "1", "y": "2"})]


def test_model_text_is_never_evaluated(tmp_path: Path) -> None:
    target = tmp_path / "pwn"
    attack = f"__import__('os').mkdir('{target}')"
    _, calls = parse(
        "qwen3_coder", f"<tool_call><function=search><parameter=flags>{attack}</parameter></function></tool_call>"
    )
    assert arguments(calls) == [("search", {"flags": attack})]
    assert not target.exists()
    source = (Path(__file__).parents[3] / "verl/experimental/agent_loop/tool_parser.py").read_text()
    assert " eval(" not in source and " exec(" not in source


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("[1, 2]", "array", [1, 2]),
        ("(1, 2)", "array", [1, 2]),
        ("{1, 2}", "array", "{1, 2}"),
        ("nan", "number", "nan"),
        ("3.0", "integer", 3),
        ("many", "integer", "many"),
        ("null", "string", "null"),
        ("null", "integer", None),
        ("yes", "boolean", "yes"),
        ("(" * 5000, "array", "(" * 5000),
    ],
)
def test_only_literals_are_read(text: str, kind: str, value: Any) -> None:
    read = typed_value(text, kind)
    assert (list(read) if isinstance(read, tuple) else read) == value


def test_a_degenerate_answer_does_not_hold_the_loop() -> None:
    started = time.monotonic()
    parse("hermes", "<tool_call>" * 50_000)
    parse("gpt-oss", "<|channel|>analysis<|message|>" * 5_000)
    parse("qwen3_coder", "<tool_call><function=a><parameter=" * 5_000)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("name", "head", "tail"),
    [
        ("hermes", "<tool_call>", "</tool_call>"),
        ("gpt-oss", "<|channel|>commentary to=functions.f<|message|>", "<|call|>"),
        ("qwen3_coder", "<tool_call><function=f><parameter=x>", "</parameter></function></tool_call>"),
    ],
)
def test_brackets_deeper_than_python_recurses_are_no_failure(name: str, head: str, tail: str) -> None:
    parse(name, f"{head}{'[' * 100_000}{tail}")


def test_an_unknown_format_names_the_key_and_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"multi_turn\.format.*hermes"):
        ToolParser.get_tool_parser("hermse", Text())
