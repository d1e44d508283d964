# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""MATH (Hendrycks et al., arXiv:2103.03874): the boxed answer, compared as normalised LaTeX text."""

import re

from verl.utils.reward_score.boxed import boxed_content, last_boxed_only_string, remove_boxed

__all__ = [
    "compute_score",
    "fix_a_slash_b",
    "fix_fracs",
    "fix_sqrt",
    "is_equiv",
    "last_boxed_only_string",
    "remove_boxed",
    "remove_right_units",
    "strip_string",
]


def compute_score(solution_str: str, ground_truth: str) -> float:
    """1 where the last boxed expression equals the ground truth after normalisation, else 0."""
    answer = boxed_content(solution_str)
    return float(answer is not None and is_equiv(answer, ground_truth))


def is_equiv(str1: str | None, str2: str | None, verbose: bool = False) -> bool:
    """Whether two LaTeX texts are one after `strip_string`; None equals None only."""
    if str1 is None or str2 is None:
        return str1 is str2
    return _normalised(str1) == _normalised(str2)


def strip_string(string: str) -> str:
    """LaTeX without what does not change its value: spaces, sizes, units, degrees, percent, short fractions."""
    for old, new in (
        ("\n", ""),
        ("\\!", ""),
        ("\\\\", "\\"),
        ("tfrac", "frac"),
        ("dfrac", "frac"),
        ("\\left", ""),
        ("\\right", ""),
        ("^{\\circ}", ""),
        ("^\\circ", ""),
        ("\\$", ""),
    ):
        string = string.replace(old, new)
    string = remove_right_units(string)
    string = string.replace("\\%", "")
    # A decimal point without its zero.
    string = string.replace(" .", " 0.").replace("{.", "{0.")
    if string.startswith("."):
        string = "0" + string
    # "k = 3" means 3.
    sides = string.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:
        string = sides[1]
    string = fix_fracs(fix_sqrt(string).replace(" ", ""))
    if string == "0.5":
        string = "\\frac{1}{2}"
    return fix_a_slash_b(string)


def remove_right_units(string: str) -> str:
    """Without a unit behind the number, as in `5\\text{ cm}`."""
    return string.split("\\text{ ")[0] if string.count("\\text{ ") == 1 else string


def fix_sqrt(string: str) -> str:
    """`\\sqrt3` as `\\sqrt{3}`."""
    return re.sub(r"\\sqrt([^{])", r"\\sqrt{\1}", string)


def fix_fracs(string: str) -> str:
    """`\\frac12` and `\\frac1{2}` with braces around both parts."""
    return re.sub(r"\\frac([^{\\])(?:\{([^{}]*)\}|([^{\\]))", _braced, string)


def _braced(match: re.Match[str]) -> str:
    denominator = match.group(2) if match.group(2) is not None else match.group(3)
    return f"\\frac{{{match.group(1)}}}{{{denominator}}}"


def fix_a_slash_b(string: str) -> str:
    """A plain fraction of whole numbers, `3/4`, as `\\frac{3}{4}`."""
    match = re.fullmatch(r"(0|-?[1-9]\d*)/(0|-?[1-9]\d*)", string)
    return f"\\frac{{{match[1]}}}{{{match[2]}}}" if match else string


def _normalised(string: str) -> str:
    return strip_string(string).strip()
