# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""GSM8K: the number after `####`."""

import re

from verl.errors import ConfigError

__all__ = ["compute_score", "extract_solution"]

# The answer stands at the end; a long chain of thought before it costs regex time and means nothing.
_TAIL_CHARACTERS = 300
_MARKED = re.compile(r"#### (-?[0-9.,]+)")
_NUMBER = re.compile(r"-?[0-9.,]+")


def extract_solution(solution_str: str, method: str = "strict") -> str | None:
    """The final number as text, or None.

    strict takes the last number behind `#### ` without its thousands separators, flexible the last number of all.
    """
    if method not in ("strict", "flexible"):
        raise ConfigError("unknown method", where="gsm8k.extract_solution", got=method, expected="strict or flexible")
    tail = solution_str[-_TAIL_CHARACTERS:]
    if method == "strict":
        found = _MARKED.findall(tail)
        return found[-1].replace(",", "") if found else None
    numbers = [number for number in _NUMBER.findall(tail) if number != "."]
    return numbers[-1] if numbers else None


def compute_score(
    solution_str: str, ground_truth: str, method: str = "strict", format_score: float = 0.0, score: float = 1.0
) -> float:
    """`score` for the right number, `format_score` for another one, 0 for none."""
    answer = extract_solution(solution_str, method)
    if answer is None:
        return 0.0
    return score if answer == ground_truth else format_score
