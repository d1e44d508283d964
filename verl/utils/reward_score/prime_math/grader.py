# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Equality of two answers as numbers and as expressions."""

import math
import re

from verl.utils.reward_score.math_verify import TimeoutException, expressions_equal, numeric_value

__all__ = ["is_digit", "math_equal", "symbolic_equal"]


def math_equal(
    prediction: bool | float | str,
    reference: float | str,
    include_percentage: bool = True,
    tolerance: float = 1e-4,
    timeout: float = 10.0,
    pi: float = math.pi,
) -> bool:
    """Whether two answers are one: as text, as numbers within `tolerance` (relative), or symbolically.

    `include_percentage` also accepts the number a hundred times larger or smaller.
    """
    given, truth = str(prediction).strip(), str(reference).strip()
    if given.lower() == truth.lower():
        return True
    left, right = is_digit(_with_pi(given, pi)), is_digit(_with_pi(truth, pi))
    if left[1] is not None and right[1] is not None:
        candidates = (right[1] / 100, right[1], right[1] * 100) if include_percentage else (right[1],)
        return any(math.isclose(left[1], value, rel_tol=tolerance) for value in candidates)
    is_expression = re.search(r"[\\/^*+\-]", given + truth) is not None
    if not given or (left[0] != right[0] and not is_expression):
        return False
    return symbolic_equal(given, truth, tolerance, timeout)


def symbolic_equal(a: str, b: str, tolerance: float, timeout: float = 10.0) -> bool:
    """Whether two LaTeX or plain expressions are equal for SymPy, or as numbers within `tolerance` (relative).

    What takes longer than `timeout` s is not.
    """
    try:
        if expressions_equal(f"${a}$", f"${b}$", timeout_s=timeout):
            return True
        left, right = (numeric_value(f"${text}$", timeout_s=timeout) for text in (a, b))
    except TimeoutException:
        return False
    return left is not None and right is not None and math.isclose(left, right, rel_tol=tolerance)


def is_digit(s: object) -> tuple[bool, float | None]:
    """(whether a text is a number, the number); separators and a percent sign are allowed."""
    text = str(s).strip().replace(",", "")
    percent = text.endswith("%")
    try:
        number = float(text.rstrip("%").rstrip("\\"))
    except ValueError:
        return False, None
    return True, number / 100 if percent else number


def _with_pi(text: str, pi: float) -> str:
    """A multiple of π as its number: `2\\pi`, `\\pi/2` stay expressions unless they are a plain product."""
    match = re.fullmatch(r"(-?[\d.]*)\s*\*?\s*\\pi", text)
    if not match:
        return text
    factor = match.group(1)
    return str(float(f"{factor}1" if factor in ("", "-") else factor) * pi)
