# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Question answering as in Search-R1 (arXiv:2503.09516): exact match of the text in `<answer>` tags."""

import re
import string
from typing import Any

__all__ = [
    "compute_score",
    "compute_score_subem",
    "count_answer_tags",
    "em_check",
    "extract_solution",
    "normalize_answer",
    "subem_check",
]

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
# More tags than this are an attempt at the pattern, not an answer.
_MAX_TAGS = 10


def normalize_answer(s: str) -> str:
    """In lower case, without punctuation and articles, single spaces (SQuAD, arXiv:1606.05250)."""
    return " ".join(_ARTICLE.sub(" ", s.lower().translate(_NO_PUNCTUATION)).split())


def em_check(prediction: str, golden_answers: str | list[str]) -> int:
    """1 where the prediction is one of the answers, else 0."""
    return int(normalize_answer(prediction) in {normalize_answer(answer) for answer in _as_list(golden_answers)})


def subem_check(prediction: str, golden_answers: str | list[str]) -> int:
    """1 where one of the answers stands inside the prediction, else 0."""
    text = normalize_answer(prediction)
    return int(any(normalize_answer(answer) in text for answer in _as_list(golden_answers)))


def extract_solution(solution_str: str) -> str | None:
    """The text of the last pair of `<answer>` tags, or None."""
    found = _ANSWER.findall(solution_str)
    return found[-1].strip() if found else None


def count_answer_tags(text: str) -> tuple[int, int]:
    """(opening, closing) tags."""
    return text.count("<answer>"), text.count("</answer>")


def compute_score(
    solution_str: str,
    ground_truth: dict[str, Any],
    method: str = "strict",
    format_score: float = 0.0,
    score: float = 1.0,
) -> float:
    """`score` for an exact match with one of `ground_truth["target"]`, `format_score` for another answer, 0 for none.

    An answer among more than ten tags of one kind gets a quarter.
    """
    answer = extract_solution(solution_str)
    if answer is None:
        return 0.0
    if not em_check(answer, ground_truth["target"]):
        return format_score
    return score / 4 if max(count_answer_tags(solution_str)) > _MAX_TAGS else score


def compute_score_subem(
    solution_str: str,
    ground_truth: dict[str, Any],
    method: str = "strict",
    format_score: float = 0.0,
    score: float = 1.0,
) -> float:
    """As `compute_score`, where the answer may stand inside a longer text."""
    answer = extract_solution(solution_str)
    if answer is None:
        return 0.0
    return score if subem_check(answer, ground_truth["target"]) else format_score


def _as_list(answers: Any) -> list[str]:
    return [answers] if isinstance(answers, str) else [str(answer) for answer in answers]
