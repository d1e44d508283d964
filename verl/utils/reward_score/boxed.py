# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The last `\\boxed{...}` of an answer."""

import re

from verl.errors import RewardError

__all__ = ["boxed_content", "last_boxed_only_string", "last_boxed_span", "remove_boxed", "unbox"]

_OPEN = re.compile(r"\\f?boxed\s*\{|\\fbox\s*\{|\\boxed (?=[^{\s])")


def last_boxed_span(text: str) -> str | None:
    """The last `\\boxed{...}` or `\\fbox{...}` (or `\\boxed x` up to the next `$`), or None; braces must balance."""
    found = list(_OPEN.finditer(text))
    if not found:
        return None
    last = found[-1]
    if not last.group().endswith("{"):
        return text[last.start() :].split("$")[0]
    depth = 0
    for position in range(last.end() - 1, len(text)):
        depth += (text[position] == "{") - (text[position] == "}")
        if depth == 0:
            return text[last.start() : position + 1]
    return None


def unbox(span: str) -> str | None:
    """What stands inside a span as `last_boxed_span` returns it; None where it is no such span."""
    for head in ("\\boxed ", "\\boxed{", "\\fbox{"):
        if span.startswith(head):
            return span[len(head) :] if head.endswith(" ") else span[len(head) : -1] if span.endswith("}") else None
    return None


def boxed_content(text: str) -> str | None:
    """The content of the last box of an answer, or None."""
    span = last_boxed_span(text)
    return None if span is None else unbox(span)


def last_boxed_only_string(string: str) -> str | None:
    """The last `\\boxed{...}` with its command, or None."""
    return last_boxed_span(string)


def remove_boxed(s: str) -> str:
    """The content of a `\\boxed{...}`."""
    content = unbox(s)
    if content is None:
        raise RewardError("not a boxed expression", got=s, expected="\\boxed{...}")
    return content
