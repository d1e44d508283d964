# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""MATH answers, a batch in one call (for the `batch` reward manager)."""

from typing import Any

from verl.utils.reward_score.math_reward import compute_score

__all__ = ["compute_score_batched"]


def compute_score_batched(
    data_sources: list[str], solution_strs: list[str], ground_truths: list[str], extra_infos: list[dict[str, Any]]
) -> list[float]:
    """One score per answer."""
    return [compute_score(answer, truth) for answer, truth in zip(solution_strs, ground_truths, strict=True)]
