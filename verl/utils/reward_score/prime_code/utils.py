# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A program against its test cases."""

from typing import Any

from verl.utils.reward_score.prime_code.testing_util import run_test

__all__ = ["check_correctness"]


def check_correctness(
    in_outs: dict[str, Any] | None, generation: str, timeout: float = 10, debug: bool = True
) -> tuple[list[Any], list[dict[str, Any]]]:
    """(results, metadata) of `run_test`; without test cases one failure."""
    if not in_outs:
        return [-1], [{"error": "no test cases"}]
    return run_test(in_outs, test=generation, debug=debug, timeout=timeout)
