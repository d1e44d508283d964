# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Scores of tool calls (Qian et al., ToolRL: Reward is All Tool Learning Needs, arXiv:2504.13958).

An answer thinks in `<think>` tags and then calls tools, one JSON object `{"name": …, "parameters": {…}}` a line in
`<tool_call>` tags, or answers in `<response>` tags, or both. Its score is 1 or 0 for the form, and -3 to 3 for how far
its calls agree with those of the ground truth in names, in names of parameters and in their values.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from verl.errors import DataError

__all__ = [
    "compute_score",
    "compute_tool_call_reward",
    "customize_correctness_reward_tool",
    "customize_format_reward_func",
    "match_score",
]

logger = logging.getLogger(__name__)

FORMAT_RANGE = (0.0, 1.0)
CORRECTNESS_RANGE = (-3.0, 3.0)

_THINK = r"<think>.*?</think>"
_CALL = r"\n<tool_call>\n.*?\n</tool_call>"
_RESPONSE = r"\n<response>.*?</response>"

Call = dict[str, Any]


def match_score(list1: Sequence[Any], list2: Sequence[Any]) -> float:
    """How far two lists agree, 0 to 1, whatever their order: common elements over all, each as often as it occurs."""
    first, second = Counter(list1), Counter(list2)
    every = (first | second).total()
    return (first & second).total() / every if every else 1.0


def customize_format_reward_func(
    completions: Sequence[Sequence[dict[str, str]]],
    answer: Sequence[str],
    step: int,
    max_possible_reward: float,
    min_possible_reward: float,
    do_print: bool,
    **kwargs: Any,
) -> list[float]:
    """For each completion (a list of messages) the larger reward if it has the parts that `answer` has, in order.

    `do_print` logs what was judged; `step` changes nothing.
    """
    rewards = []
    for completion, wanted in zip(completions, answer, strict=True):
        fits = _has_form(completion[0]["content"], calls="<tool_call>" in wanted, responds="<response>" in wanted)
        rewards.append(max_possible_reward if fits else min_possible_reward)
        _show(do_print, "form", completion[0]["content"], rewards[-1])
    return rewards


def compute_tool_call_reward(
    gt_tools: Sequence[Call],
    pd_tools: Sequence[Call],
    max_possible_reward: float,
    min_possible_reward: float,
    do_print: bool,
) -> float:
    """How far the calls `pd_tools` agree with `gt_tools`, from the smaller to the larger reward.

    Points: the match of all names (1); for each wanted call, with the best call of that name that is not taken yet,
    the match of the names of parameters (1) and one for each parameter with the right value.
    """
    points = match_score([call["name"] for call in gt_tools], [call["name"] for call in pd_tools])
    most = 1 + sum(1 + len(_parameters(call)) for call in gt_tools)
    left = list(pd_tools)
    for wanted in gt_tools:
        rated = {place: _agreement(wanted, call) for place, call in enumerate(left) if call["name"] == wanted["name"]}
        if rated:
            best = max(rated, key=rated.__getitem__)
            points += rated[best]
            del left[best]
    reward = min_possible_reward + (max_possible_reward - min_possible_reward) * points / most
    _show(do_print, "calls", str(list(pd_tools)), reward)
    return reward


def customize_correctness_reward_tool(
    completions: Sequence[Sequence[dict[str, str]]],
    answer: Sequence[str],
    step: int,
    max_possible_reward: float,
    min_possible_reward: float,
    do_print: bool,
    **kwargs: Any,
) -> list[float]:
    """For each completion the reward of its calls: 0 where `answer` has none, the smaller one where it has none."""
    rewards = []
    for completion, wanted in zip(completions, answer, strict=True):
        if "<tool_call>" not in wanted:
            rewards.append(0.0)
            continue
        wanted_calls, calls = _calls(wanted), _calls(completion[0]["content"])
        if wanted_calls is None:
            raise DataError("the ground truth's tool calls cannot be read", got=wanted, expected="a JSON call a line")
        if calls is None:
            rewards.append(min_possible_reward)
        else:
            extremes = (max_possible_reward, min_possible_reward)
            rewards.append(compute_tool_call_reward(wanted_calls, calls, *extremes, do_print))
    return rewards


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any, step: int = 0
) -> dict[str, float]:
    """`score` of an answer, the sum of `format` (0 or 1) and `correctness` (-3 to 3)."""
    completions, answers = [[{"role": "assistant", "content": solution_str.strip()}]], [ground_truth]
    low, high = FORMAT_RANGE
    (form,) = customize_format_reward_func(completions, answers, step, high, low, do_print=False)
    low, high = CORRECTNESS_RANGE
    (correct,) = customize_correctness_reward_tool(completions, answers, step, high, low, do_print=False)
    return {"score": form + correct, "format": form, "correctness": correct}


def _has_form(text: str, calls: bool, responds: bool) -> bool:
    pattern = _THINK + (_CALL if calls else "") + (_RESPONSE if responds else "")
    tags = [tag for tag, there in (("tool_call", calls), ("response", responds)) if there]
    once = all(text.count(f"<{tag}>") == text.count(f"</{tag}>") == 1 for tag in tags)
    return once and re.fullmatch(pattern, text, re.DOTALL) is not None


def _calls(text: str) -> list[Call] | None:
    """The calls in a text, or null where it has none that can be read."""
    found = re.search(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL)
    if found is None:
        return None
    try:
        calls = [json.loads(line) for line in found.group(1).strip().split("\n")]
    except ValueError:
        return None
    readable = all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls)
    return calls if readable and all(isinstance(_parameters(call), dict) for call in calls) else None


def _parameters(call: Call) -> dict[str, Any]:
    return call.get("parameters") or {}


def _agreement(wanted: Call, call: Call) -> float:
    expected, given = _parameters(wanted), _parameters(call)
    right = sum(1 for name, value in expected.items() if name in given and given[name] == value)
    return match_score(list(expected), list(given)) + right


def _show(wanted: bool, what: str, text: str, reward: float) -> None:
    if wanted:
        logger.info("%s of %r: %s", what, text, reward)
