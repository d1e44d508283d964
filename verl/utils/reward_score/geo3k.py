# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Geometry3K: thoughts in tags, the answer in a box."""

import re

from verl.utils.reward_score.boxed import boxed_content
from verl.utils.reward_score.prime_math import grade_answer

__all__ = ["acc_reward", "compute_score", "format_reward"]

_FORMAT = re.compile(r"<think>.*</think>.*\\boxed\{.*\}.*", re.DOTALL)


def format_reward(predict_str: str) -> float:
    """1 for thoughts in `<think>` tags and a box behind them, else 0."""
    return float(_FORMAT.fullmatch(predict_str) is not None)


def acc_reward(predict_str: str, ground_truth: str, use_boxed: bool = True) -> float:
    """1 for the right answer, in a box (`use_boxed`) or as the whole text."""
    answer = boxed_content(predict_str) if use_boxed else predict_str
    return float(grade_answer(answer, ground_truth))


def compute_score(predict_str: str, ground_truth: str, use_boxed: bool = True, format_score: float = 0.1) -> float:
    """(1 - format_score) · accuracy + format_score · format."""
    return (1.0 - format_score) * acc_reward(predict_str, ground_truth, use_boxed) + format_score * format_reward(
        predict_str
    )
