# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Numina mathematics (PRIME): the answer in a box or behind a phrase, compared as text, number, then symbolically."""

import re
from typing import Any

from verl.utils.reward_score.boxed import boxed_content, unbox
from verl.utils.reward_score.prime_math.grader import math_equal
from verl.utils.reward_score.prime_math.math_normalize import normalize_answer

__all__ = [
    "compute_score",
    "grade_answer",
    "match_answer",
    "math_equal",
    "normalize_answer",
    "remove_boxed",
    "split_tuple",
]

_PHRASES = re.compile(r"(?:answer is|answer:|is:|=)\s*(?P<answer>[^\n]+)", re.IGNORECASE)
_BRACKETS = "()[]"


def compute_score(model_output: Any, ground_truth: Any) -> tuple[bool, bool, str]:
    """(whether right, whether the steps and a box are there, the answer found)."""
    text, truth = str(model_output), str(ground_truth)
    _, answer = match_answer(text)
    if grade_answer(answer, truth):
        return True, True, answer
    formatted = "Step 2:" in text and "\\box" in text
    # π is written out as 3.14 by some answers.
    values = (3.141592653589793, 3.14) if "\\pi" in answer + truth else (3.141592653589793,)
    return any(math_equal(answer, truth, pi=pi) for pi in values), formatted, answer


def match_answer(response: str) -> tuple[bool, str]:
    """(whether an answer was found, the answer): the last box, else behind the last phrase, else the whole text."""
    boxed = boxed_content(response)
    if boxed is not None:
        return True, boxed.strip()
    phrases = list(_PHRASES.finditer(response))
    if phrases:
        answer = phrases[-1].group("answer").strip()
        return True, answer.strip("$ ").rstrip(".")
    return False, response


def grade_answer(given_answer: str | None, ground_truth: str) -> bool:
    """Whether two answers are one as normalised text, or part by part as tuples and intervals."""
    if given_answer is None:
        return False
    given, truth = normalize_answer(given_answer), normalize_answer(ground_truth)
    if given == truth:
        return True
    if not given or not truth:
        return False
    parts, wanted = split_tuple(given), split_tuple(truth)
    if len(wanted) > 1 and (truth[0] != given[0] or truth[-1] != given[-1]):
        # An open interval is not a closed one.
        return False
    if len(parts) != len(wanted):
        return False
    return all(_same_part(part, other) for part, other in zip(parts, wanted, strict=True))


def _same_part(given: str, truth: str) -> bool:
    if given == truth:
        return True
    if _is_fraction(truth) and _is_fraction(given):
        # Both in lowest terms or not: 2/4 is not the answer 1/2 that was asked for.
        return False
    if re.fullmatch(r"-?\d+", truth) and not re.fullmatch(r"-?\d+", given):
        # A whole number is to be written as one.
        return False
    return math_equal(given, truth, include_percentage=False)


def _is_fraction(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+.?/0*[1-9][0-9]*.?", text) is not None


def split_tuple(expr: str) -> list[str]:
    """The parts of a tuple or interval; one part for anything else. Thousands separators are not commas."""
    expr = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", expr)
    inner = expr[1:-1]
    if len(expr) > 2 and expr[0] in _BRACKETS and expr[-1] in _BRACKETS and not set(inner) & set(_BRACKETS):
        return [part.strip() for part in inner.split(",")]
    return [expr]


def remove_boxed(s: str) -> str | None:
    """The content of a `\\boxed{...}`, or None."""
    return unbox(s)
