# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Scores programs by running them in a Sandbox Fusion service."""

import threading
from typing import Any

from verl.errors import RewardError
from verl.utils.reward_score.code_harness import MAX_SHARED_CASES, extract_code, read_tests, share_passed
from verl.utils.reward_score.sandbox_fusion.utils import SANDBOX_FAILURE, check_correctness

__all__ = ["check_correctness", "compute_score"]


def compute_score(
    sandbox_fusion_url: str,
    concurrent_semaphore: threading.Semaphore | None,
    memory_limit_mb: int,
    completion: str,
    test_cases: Any,
    continuous: bool = False,
    timeout: int = 10,
    max_concurrent: int = 4,
) -> tuple[float, list[dict[str, Any]]]:
    """(score, metadata): the share of the first ten cases (`continuous`), else 1 for all and 0 otherwise.

    `test_cases` is a dict (or its JSON) with `inputs`, `outputs` and perhaps `fn_name`.

    Raises
    ------
    RewardError
        when the sandbox failed on a case after all retries: the answer may be right.
    """
    tests = read_tests(test_cases)
    if continuous:
        tests = tests | {key: tests[key][:MAX_SHARED_CASES] for key in ("inputs", "outputs")}
    results, metadata = check_correctness(
        sandbox_fusion_url=sandbox_fusion_url,
        in_outs=tests,
        generation=extract_code(completion),
        timeout=timeout,
        concurrent_semaphore=concurrent_semaphore,
        memory_limit_mb=memory_limit_mb,
        max_concurrent=max_concurrent,
    )
    if SANDBOX_FAILURE in results:
        facts = metadata[results.index(SANDBOX_FAILURE)]
        raise RewardError(
            f"sandbox failure: {facts['status']}",
            where=sandbox_fusion_url,
            got=facts.get("api_request_error") or facts.get("error"),
            remedy="see the sandbox's own log; fewer calls at once: reward.sandbox_fusion.max_concurrent",
        )
    return share_passed(results, continuous), metadata
