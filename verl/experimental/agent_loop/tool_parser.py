# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tool calls out of what a model wrote, in the formats that models are trained on.

Nothing here runs what the model wrote: arguments are read as JSON or as Python literals, and stay text otherwise.
"""

import ast
import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import regex
from pydantic import BaseModel

from verl.registry import Registry
from verl.tools.schemas import OpenAIFunctionToolSchema

__all__ = ["FunctionCall", "GptOssToolParser", "HermesToolParser", "Qwen3XMLToolParser", "ToolParser"]

logger = logging.getLogger(__name__)

# A degenerate answer must not hold the event loop: matching gives up after this.
MATCH_TIMEOUT_S = 1.0

# What reading a call out of a model's text may raise; a degenerate answer nests brackets deeper than Python recurses.
_NO_CALL = (ValueError, KeyError, TypeError, RecursionError)


class FunctionCall(BaseModel):
    """A call as parsed: `arguments` is a JSON text."""

    arguments: str
    name: str


class ToolParser(ABC):
    """One format of tool calls, selected by `rollout.multi_turn.format`."""

    _registry: ClassVar[Registry[type["ToolParser"]]] = Registry(
        "tool parser", key="actor_rollout_ref.rollout.multi_turn.format"
    )

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @abstractmethod
    async def extract_tool_calls(
        self, responses_ids: list[int], tools: Sequence[OpenAIFunctionToolSchema] | None = None
    ) -> tuple[str, list[FunctionCall]]:
        """(the text without the calls, the calls in order); what is no valid call stays in the text."""

    @classmethod
    def get_tool_parser(cls, name: str, tokenizer: Any) -> "ToolParser":
        return cls._registry.get(name)(tokenizer)

    @classmethod
    def register(cls, name: str) -> Callable[[type["ToolParser"]], type["ToolParser"]]:
        return cls._registry.register(name)


class _TextToolParser(ToolParser):
    """A parser of decoded text; it works in a thread, because an answer may be long and degenerate."""

    async def extract_tool_calls(
        self, responses_ids: list[int], tools: Sequence[OpenAIFunctionToolSchema] | None = None
    ) -> tuple[str, list[FunctionCall]]:
        return await asyncio.to_thread(self._decode_and_parse, responses_ids, tools or ())

    def _decode_and_parse(
        self, ids: list[int], tools: Sequence[OpenAIFunctionToolSchema]
    ) -> tuple[str, list[FunctionCall]]:
        return self.parse(self.tokenizer.decode(ids, skip_special_tokens=False), tools)

    @abstractmethod
    def parse(self, text: str, tools: Sequence[OpenAIFunctionToolSchema]) -> tuple[str, list[FunctionCall]]:
        """As `extract_tool_calls`, from text."""


def _find(pattern: regex.Pattern, text: str) -> list[Any]:
    try:
        return list(pattern.finditer(text, timeout=MATCH_TIMEOUT_S, concurrent=True))
    except TimeoutError:
        logger.warning("looking for tool calls in %d characters took longer than %.0f s", len(text), MATCH_TIMEOUT_S)
        return []


@ToolParser.register("hermes")
class HermesToolParser(_TextToolParser):
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`; Qwen2.5, Qwen3 and others."""

    _CALL: ClassVar[regex.Pattern] = regex.compile(r"<tool_call>(.*?)</tool_call>", regex.DOTALL)

    def parse(self, text: str, tools: Sequence[OpenAIFunctionToolSchema]) -> tuple[str, list[FunctionCall]]:
        calls, kept, end = [], [], 0
        for match in _find(self._CALL, text):
            call = self._read(match.group(1))
            if call is None:
                continue
            calls.append(call)
            kept.append(text[end : match.start()])
            end = match.end()
        return "".join(kept) + text[end:], calls

    @staticmethod
    def _read(body: str) -> FunctionCall | None:
        try:
            call = json.loads(body)
            return FunctionCall(name=str(call["name"]), arguments=json.dumps(call["arguments"], ensure_ascii=False))
        except _NO_CALL as error:
            logger.debug("not a tool call: %s", error)
            return None


@ToolParser.register("gpt-oss")
class GptOssToolParser(_TextToolParser):
    """Harmony: a message to `functions.<name>` on the commentary channel, its body the arguments as JSON."""

    _ANALYSIS: ClassVar[regex.Pattern] = regex.compile(
        r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>.*?<\|end\|>", regex.DOTALL
    )
    # The recipient stands before the channel or behind it.
    _CALL: ClassVar[regex.Pattern] = regex.compile(
        r"(?:<\|start\|>assistant)?"
        r"(?: to=functions\.(?P<before>[\w.-]+))?<\|channel\|>commentary(?: to=functions\.(?P<behind>[\w.-]+))?"
        r"(?: ?<\|constrain\|>\w+| json)?<\|message\|>(?P<body>.*?)(?:<\|call\|>|<\|end\|>|$)",
        regex.DOTALL,
    )

    def _decode_and_parse(
        self, ids: list[int], tools: Sequence[OpenAIFunctionToolSchema]
    ) -> tuple[str, list[FunctionCall]]:
        # Without padding, but with all other special tokens: those are the grammar.
        pad, eos = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        return super()._decode_and_parse([token for token in ids if token != pad or token == eos], tools)

    def parse(self, text: str, tools: Sequence[OpenAIFunctionToolSchema]) -> tuple[str, list[FunctionCall]]:
        thoughts = [match.span() for match in _find(self._ANALYSIS, text)]
        calls, kept, end = [], [], 0
        for match in _find(self._CALL, text):
            name = match.group("behind") or match.group("before")
            if name is None or any(start <= match.start() < stop for start, stop in thoughts):
                continue
            try:
                arguments = json.dumps(json.loads(match.group("body")), ensure_ascii=False)
            except _NO_CALL as error:
                logger.debug("not a tool call: %s", error)
                continue
            calls.append(FunctionCall(name=name, arguments=arguments))
            kept.append(text[end : match.start()])
            end = match.end()
        return "".join(kept) + text[end:], calls


@ToolParser.register("qwen3_coder")
class Qwen3XMLToolParser(_TextToolParser):
    """`<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`; Qwen3-Coder.

    Values are text; the schema of the function says what they are meant to be.
    """

    _CALL: ClassVar[regex.Pattern] = regex.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", regex.DOTALL)
    _FUNCTION: ClassVar[regex.Pattern] = regex.compile(r"<function=([^>\n]+)>(.*?)(?:</function>|$)", regex.DOTALL)
    _PARAMETER: ClassVar[regex.Pattern] = regex.compile(
        r"<parameter=([^>\n]+)>(.*?)(?:</parameter>|(?=<parameter=)|$)", regex.DOTALL
    )

    def parse(self, text: str, tools: Sequence[OpenAIFunctionToolSchema]) -> tuple[str, list[FunctionCall]]:
        types = {tool.function.name: tool.function.parameters.properties for tool in tools}
        calls, kept, end = [], [], 0
        for match in _find(self._CALL, text):
            found = [self._read(function, types) for function in _find(self._FUNCTION, match.group(1))]
            if not found:
                continue
            calls += found
            kept.append(text[end : match.start()])
            end = match.end()
        return "".join(kept) + text[end:], calls

    def _read(self, function: Any, types: dict[str, Any]) -> FunctionCall:
        name = function.group(1).strip()
        properties = types.get(name, {})
        arguments = {}
        for parameter in _find(self._PARAMETER, function.group(2)):
            key = parameter.group(1).strip()
            # The newlines next to the tags belong to the format.
            value = parameter.group(2).removeprefix("\n").removesuffix("\n")
            arguments[key] = typed_value(value, getattr(properties.get(key), "type", None))
        return FunctionCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False))


def typed_value(text: str, kind: str | list[str] | None) -> Any:
    """A parameter's text as what its schema says; text that is no such literal stays text."""
    kinds = [kind] if isinstance(kind, str) else list(kind or ["string"])
    if text.strip().lower() == "null" and ("null" in kinds or kinds != ["string"]):
        return None
    if "string" in kinds or "enum" in kinds:
        return text
    if "boolean" in kinds and text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text.strip())
            # What cannot be written as JSON (a set, bytes, NaN) is no argument of a call.
            json.dumps(value, allow_nan=False)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return int(value) if "integer" in kinds and isinstance(value, float) and value.is_integer() else value
    return text
