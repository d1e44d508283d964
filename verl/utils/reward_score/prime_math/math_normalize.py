# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""An answer in a form in which equal answers are usually equal text."""

import re

__all__ = ["normalize_answer"]

_UNITS = [
    "degree", "cm", "centimeter", "meter", "mile", "second", "minute", "hour", "day", "week", "month", "year", "foot",
    "feet", "inch", "yard", "liter", "dollar", "cent", "unit", "point", "square", "cubic",
]  # fmt: skip
_UNIT = re.compile(rf"(?<=[\d}}\s])\s*(?:{'|'.join(_UNITS)})(?:e?s)?(?:\^\d+)?\b")
_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textbf)\s*\{(.*?)\}")


def normalize_answer(answer: str | None) -> str | None:
    """Without text commands, units, layout and outer dollars; numbers without separators; in lower case."""
    if answer is None:
        return None
    text = answer.strip().strip("$").strip()
    wrapped = re.fullmatch(r"\\text\{(?P<text>.+?)\}", text)
    if wrapped:
        text = wrapped.group("text").strip()
    text = _TEXT.sub(r" \1", text)
    for old, new in (
        ("\\%", "%"), ("\\$", "$"), ("$", ""), ("%", ""), (" or ", " , "), (" and ", " , "), ("\\left", ""),
        ("\\right", ""), ("\\!", ""), ("\\,", ""), ("\\;", ""), ("\\ ", " "), ("dfrac", "frac"), ("tfrac", "frac"),
        ("million", "*10^6"), ("billion", "*10^9"), ("trillion", "*10^12"), ("^{\\circ}", ""), ("^\\circ", ""),
    ):  # fmt: skip
        text = text.replace(old, new)
    text = _UNIT.sub("", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"\\sqrt\s*([^{\s])", r"\\sqrt{\1}", text)
    text = re.sub(r"\\frac\s*([^{\s\\])\s*([^{\s\\])", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\{(-?\d+)\}\{(\d+)\}", r"\1/\2", text)
    text = re.sub(r"^(-?\d+)\.0*$", r"\1", text.replace(" ", ""))
    if re.fullmatch(r"-?\.\d+", text):
        text = text.replace(".", "0.", 1)
    return text.lower().rstrip(".")
