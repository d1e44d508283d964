# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tokens between two turns of the policy, such that the whole equals one rendering of the conversation."""

from collections.abc import Callable, Sequence
from typing import Any

from jinja2.exceptions import TemplateError

from verl.errors import ConfigError, DataError

TRUNCATE_SIDES = ("left", "right", "middle")
MARK = "...(truncated)..."

Render = Callable[[list[dict[str, Any]]], list[int]]

# Two contents that end in different tokens under any tokenizer.
_CONTENTS = ("0 a", "1 b")


def truncate_text(text: str, limit: int, side: str) -> str:
    """At most `limit` characters of a tool's answer, and a mark where something is missing.

    left drops the beginning, right the end, middle keeps both ends.
    """
    if side not in TRUNCATE_SIDES:
        raise ConfigError(
            "unknown side", where="rollout.multi_turn.tool_response_truncate_side", got=side, expected=TRUNCATE_SIDES
        )
    if len(text) <= limit:
        return text
    if side == "left":
        return MARK + text[len(text) - limit :]
    if side == "right":
        return text[:limit] + MARK
    head = limit // 2
    return text[:head] + MARK + text[len(text) - (limit - head) :]


def turn_ids(render: Render, new_messages: list[dict[str, Any]], last_token: int | None) -> list[int]:
    """Ids to append behind an answer so that `new_messages` and the next generation prompt stand there.

    `render` turns messages into ids, generation prompt included. The answer's own closing token (`last_token`) is
    not repeated; what the template puts behind it (a newline, say) is not forgotten. A cut answer is closed.
    """
    tail = _common_tail(render, new_messages)
    if last_token is not None and last_token in tail[:2]:
        return tail[tail.index(last_token) + 1 :]
    return tail


def _common_tail(render: Render, new_messages: list[dict[str, Any]]) -> list[int]:
    """What follows the content of the assistant's message, found by rendering two different contents."""
    failures: list[Exception] = []
    for called in (False, True):
        try:
            one, two = (render([*_before(content, called, new_messages), *new_messages]) for content in _CONTENTS)
        except (TemplateError, ValueError, TypeError, KeyError) as error:
            # Some templates allow a tool's answer behind a call only.
            failures.append(error)
            continue
        return _common_suffix(one, two)
    raise DataError(f"the chat template cannot render a turn behind an answer ({failures[0]})") from failures[0]


def _before(content: str, called: bool, new_messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    answer: dict[str, Any] = {"role": "assistant", "content": content}
    if called:
        name = next((message.get("name") for message in new_messages if message.get("name")), None) or "tool"
        # Here the argument is what differs: some templates leave out the text beside a call.
        function = {"name": name, "arguments": {"x": content}}
        answer["tool_calls"] = [{"id": "call_0", "type": "function", "function": function}]
    return [{"role": "user", "content": "q"}, answer]


def _common_suffix(one: list[int], two: list[int]) -> list[int]:
    length = 0
    while length < min(len(one), len(two)) and one[-1 - length] == two[-1 - length]:
        length += 1
    return one[len(one) - length :]
