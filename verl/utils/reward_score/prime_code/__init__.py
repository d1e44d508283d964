# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Programs scored in limited processes on this machine."""

from typing import Any

from verl.utils.reward_score.code_harness import MAX_SHARED_CASES, extract_code, read_tests, share_passed
from verl.utils.reward_score.prime_code.utils import check_correctness

__all__ = ["check_correctness", "compute_score"]


def compute_score(completion: str, test_cases: Any, continuous: bool = False) -> tuple[float, list[dict[str, Any]]]:
    """(score, metadata): the share of the first ten cases (`continuous`), else 1 for all and 0 otherwise."""
    tests = read_tests(test_cases)
    if continuous:
        tests = tests | {key: tests[key][:MAX_SHARED_CASES] for key in ("inputs", "outputs")}
    results, metadata = check_correctness(tests, extract_code(completion), debug=False)
    return share_passed(results, continuous), metadata
