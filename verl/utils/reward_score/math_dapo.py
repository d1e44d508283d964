# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""DAPO's mathematics: the text behind `Answer:` (or the last box), normalised as in Minerva (arXiv:2206.14858, D.1)."""

import re
from typing import Any

from verl.errors import RewardError
from verl.utils.reward_score.boxed import last_boxed_only_string, last_boxed_span, remove_boxed

__all__ = [
    "REMOVED_EXPRESSIONS",
    "SUBSTITUTIONS",
    "compute_score",
    "is_correct_minerva",
    "is_correct_strict_box",
    "last_boxed_only_string",
    "normalize_final_answer",
    "remove_boxed",
    "verify",
]

# The answer stands at the end.
_TAIL_CHARACTERS = 300
_BOX_TAIL_CHARACTERS = 100
_NO_ANSWER = "[INVALID]"

SUBSTITUTIONS = [
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    ("\\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (",\\text{and}", ","),
    ("\\text{and}", ","),
    ("\\text{m}", "\\text{}"),
]

REMOVED_EXPRESSIONS = [
    "square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "\\ldots", "sue", "points",
    "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students",
    "childrentickets", "multiples", "\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}",
    "\\text{}", "\\mathrm{th}", "^\\circ", "^{\\circ}", "\\;", ",\\!", "{,}", '"', "\\dots",
]  # fmt: skip

# What is inside the first pair of dollars; then commands that only change the look; then short forms in full.
_REWRITES = [
    (re.compile(r"(.*?)(\$)(.*?)(\$)(.*)"), r"$\3$"),
    (re.compile(r"(\\text\{)(.*?)(\})"), r"\2"),
    (re.compile(r"(\\textbf\{)(.*?)(\})"), r"\2"),
    (re.compile(r"(\\overline\{)(.*?)(\})"), r"\2"),
    (re.compile(r"(\\boxed\{)(.*)(\})"), r"\2"),
    (re.compile(r"(frac)([^{])(.)"), r"frac{\2}{\3}"),
    (re.compile(r"(sqrt)([^{])"), r"sqrt{\2}"),
]


def compute_score(
    solution_str: str,
    ground_truth: str,
    strict_box_verify: bool = False,
    pause_tokens_index: list[int] | None = None,
) -> dict[str, Any]:
    """`score` 1 or -1, `acc` whether right, `pred` the answer found."""
    right, answer = verify(solution_str[-_TAIL_CHARACTERS:], ground_truth, strict_box_verify, pause_tokens_index)
    return {"score": 1.0 if right else -1.0, "acc": right, "pred": answer}


def verify(
    solution_str: str, answer: str, strict_box_verify: bool = False, pause_tokens_index: list[int] | None = None
) -> tuple[bool, str | None]:
    """(whether right, the answer found), by box (`strict_box_verify`) or by `Answer:`."""
    if strict_box_verify:
        score, found = is_correct_strict_box(solution_str, answer, pause_tokens_index)
        return score == 1, found
    return is_correct_minerva(solution_str, answer)


def is_correct_minerva(
    solution_str: str, gt: str, gt_need_extract: bool = False, answer_pattern: str = r"(?i)Answer\s*:\s*([^\n]+)"
) -> tuple[bool, str]:
    """(whether right, the last text that follows `Answer:`), both sides normalised."""
    found = re.findall(answer_pattern, solution_str)
    answer = normalize_final_answer(found[-1] if found else _NO_ANSWER)
    if gt_need_extract:
        span = last_boxed_span(gt)
        if span is None:
            raise RewardError("the ground truth has no boxed answer", got=gt)
        gt = remove_boxed(span)
    return answer == normalize_final_answer(str(gt)), answer


def is_correct_strict_box(pred: str, gt: str, pause_tokens_index: list[int] | None = None) -> tuple[int, str | None]:
    """(1 or -1, content of the last box near the end); with four pause positions, near the last of them."""
    if pause_tokens_index is not None:
        if len(pause_tokens_index) != 4:
            raise RewardError("pause positions", got=len(pause_tokens_index), expected=4)
        pred = pred[max(0, pause_tokens_index[-1] - _BOX_TAIL_CHARACTERS) :]
    else:
        pred = pred[-_BOX_TAIL_CHARACTERS:]
    span = last_boxed_span(pred)
    content = None if span is None else remove_boxed(span)
    return (1 if content == gt else -1), content


def normalize_final_answer(final_answer: str) -> str:
    """An answer without words, units and layout; a number without its thousands separators."""
    text = final_answer.split("=")[-1]
    for old, new in SUBSTITUTIONS:
        text = text.replace(old, new)
    for expression in REMOVED_EXPRESSIONS:
        text = text.replace(expression, "")
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = text.replace("$", "")
    without_commas = text.replace(",", "")
    return (without_commas if without_commas.isdigit() else text).strip()
