# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The built-in reward function: a scorer by data source."""

import importlib
from typing import Any

from verl.errors import ConfigError, RewardError

__all__ = ["default_compute_score", "get_default_compute_score"]

_GSM8K = "gsm8k"
_MATH = "math_reward"
_DAPO = "math_dapo"
_PRIME_MATH = "prime_math"
_CODE = "code"
_GEO3K = "geo3k"
_SEARCH = "search_r1_like_qa_em"

SCORERS: dict[str, str] = {
    "openai/gsm8k": _GSM8K,
    **dict.fromkeys(("lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500"), _MATH),
    **dict.fromkeys(("math_dapo", "math", "math_dapo_reasoning"), _DAPO),
    **dict.fromkeys(
        (
            "numina_aops_forum",
            "numina_synthetic_math",
            "numina_amc_aime",
            "numina_synthetic_amc",
            "numina_cn_k12",
            "numina_olympiads",
        ),
        _PRIME_MATH,
    ),
    **dict.fromkeys(("codecontests", "apps", "codeforces", "taco"), _CODE),
    "hiyouga/geometry3k": _GEO3K,
    **{
        f"searchR1_{name}": _SEARCH
        for name in ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
    },
}
"""Data source → scorer; sources that begin with "aime" are scored as math_dapo."""


def default_compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    sandbox_fusion_url: str | None = None,
    concurrent_semaphore: Any | None = None,
    memory_limit_mb: int | None = None,
    **kwargs: Any,
) -> float | dict[str, Any]:
    """Score an answer with the scorer of its data source; a number, or a dict with `score`.

    Code is run in the sandbox at `sandbox_fusion_url`, or without one in limited local processes.
    """
    scorer = SCORERS.get(data_source) or (_DAPO if str(data_source).startswith("aime") else None)
    if scorer is None:
        raise RewardError(
            "no built-in scorer for this data source",
            where="reward",
            got=data_source,
            expected=f"one of {', '.join(sorted(SCORERS))}, aime*",
            remedy="name your own function in reward.custom_reward_function",
        )
    if scorer == _CODE:
        return _score_code(
            solution_str, ground_truth, sandbox_fusion_url, concurrent_semaphore, memory_limit_mb, kwargs
        )
    result = _module(scorer).compute_score(solution_str, ground_truth)
    if isinstance(result, dict):
        return result
    return float(result[0] if isinstance(result, tuple | list) else result)


def get_default_compute_score(reward_name: str | None = None) -> Any:
    """The built-in function for a kind of answer; text is the only one here."""
    if reward_name in (None, "text", "naive", "dapo"):
        return default_compute_score
    raise ConfigError("no built-in scorer of this kind", got=reward_name, remedy="use reward.custom_reward_function")


def _score_code(
    solution_str: str, tests: Any, url: str | None, semaphore: Any, memory_limit_mb: int | None, kwargs: dict[str, Any]
) -> Any:
    if url:
        score, metadata = _module("sandbox_fusion").compute_score(
            url,
            semaphore,
            memory_limit_mb or 1024,
            solution_str,
            tests,
            continuous=True,
            **{key: kwargs[key] for key in ("timeout", "max_concurrent") if key in kwargs},
        )
    else:
        score, metadata = _module("prime_code").compute_score(solution_str, tests, continuous=True)
    del metadata
    return float(score)


def _module(scorer: str) -> Any:
    # One scorer, one library: gsm8k must not wait for SymPy.
    return importlib.import_module(f"verl.utils.reward_score.{scorer}")
