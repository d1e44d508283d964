# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Scores of tool calls, against values worked out by hand."""

import json
import logging
from typing import Any

import pytest

from verl.errors import DataError
from verl.utils.reward_score.rlla import (
    compute_score,
    compute_tool_call_reward,
    customize_correctness_reward_tool,
    customize_format_reward_func,
    match_score,
)


def call(name: str, **parameters: Any) -> dict[str, Any]:
    return {"name": name, "parameters": parameters}


def text(*calls: dict[str, Any], response: str | None = None, think: str = "so") -> str:
    parts = [f"<think>{think}</think>"]
    if calls:
        parts.append("<tool_call>\n" + "\n".join(json.dumps(one) for one in calls) + "\n</tool_call>")
    if response is not None:
        parts.append(f"<response>{response}</response>")
    return "\n".join(parts)


@pytest.mark.parametrize(
    ("first", "second", "score"),
    [
        (["a", "b"], ["b", "a"], 1.0),
        (["a", "b"], ["a"], 1 / 2),
        (["a", "a", "b"], ["a", "b", "b"], 2 / 4),
        (["a"], ["b"], 0.0),
        (["a"], [], 0.0),
        ([], [], 1.0),
    ],
)
def test_lists_agree_by_their_common_elements(first: list[str], second: list[str], score: float) -> None:
    assert match_score(first, second) == match_score(second, first) == score


def reward(wanted: list[dict[str, Any]], given: list[dict[str, Any]]) -> float:
    return compute_tool_call_reward(wanted, given, 3.0, -3.0, do_print=False)


WEATHER = call("weather", city="Rome", day=1)


@pytest.mark.parametrize(
    ("given", "points"),
    [
        # Most: 1 for the names, 1 for the parameters' names, 2 for the values.
        ([WEATHER], 4),
        ([call("weather", city="Rome", day=2)], 3),
        ([call("weather", city="Rome")], 1 + 1 / 2 + 1),
        ([call("weather")], 1),
        ([call("news", city="Rome", day=1)], 0),
        ([], 0),
        ([WEATHER, WEATHER], 1 / 2 + 3),
        ([call("weather"), WEATHER], 1 / 2 + 3),
    ],
)
def test_calls_get_points_for_names_parameters_and_values(given: list[dict[str, Any]], points: float) -> None:
    assert reward([WEATHER], given) == pytest.approx(-3 + 6 * points / 4)


def test_a_call_answers_one_wanted_call_only() -> None:
    other = call("weather", city="Oslo", day=1)
    # 1 for the names; Rome's call has 3; Oslo's finds none left. Most: 1 + 3 + 3.
    assert reward([WEATHER, other], [WEATHER]) == pytest.approx(-3 + 6 * (1 / 2 + 3) / 7)
    assert reward([WEATHER, other], [other, WEATHER]) == 3.0
    # The parameters of the second are half right: names 1, values 1.
    assert reward([WEATHER, other], [WEATHER, call("weather", city="Bonn", day=1)]) == pytest.approx(-3 + 6 * 6 / 7)


@pytest.mark.parametrize(
    ("answer", "given", "fits"),
    [
        (text(WEATHER), text(call("news")), True),
        (text(WEATHER), text(response="hello"), False),
        (text(WEATHER), text(WEATHER, response="hello"), False),
        (text(WEATHER, response="x"), text(WEATHER, response="hello"), True),
        (text(response="x"), text(response="hello"), True),
        (text(response="x"), "hello", False),
        (text(response="x"), text(response="a</response><response>b"), False),
        (text(), text(think="a\nb"), True),
        (text(WEATHER), text(WEATHER) + "\nbye", False),
        (text(WEATHER), "well " + text(WEATHER), False),
    ],
)
def test_the_form_is_that_of_the_answer(answer: str, given: str, fits: bool) -> None:
    messages = [[{"role": "assistant", "content": given}]]
    assert customize_format_reward_func(messages, [answer], 0, 1.0, 0.0, False) == [float(fits)]
    assert customize_format_reward_func(messages, [answer], 5, 0.5, -0.5, False) == [0.5 if fits else -0.5]


@pytest.mark.parametrize(
    ("given", "score"),
    [
        (text(WEATHER), -1 + 2),
        ("no call", -1.0),
        ("<think></think>\n<tool_call>\nnot json\n</tool_call>", -1.0),
        ('<tool_call>\n["weather"]\n</tool_call>', -1.0),
        ('<tool_call>\n{"name": "weather", "parameters": 3}\n</tool_call>', -1.0),
        ('<tool_call>\n{"name": "weather"}\n</tool_call>', -1 + 2 / 4),
    ],
)
def test_calls_that_cannot_be_read_have_the_smallest_reward(given: str, score: float) -> None:
    messages = [[{"role": "assistant", "content": given}]]
    assert customize_correctness_reward_tool(messages, [text(WEATHER)], 0, 1.0, -1.0, False) == [pytest.approx(score)]


def test_an_answer_without_calls_is_judged_by_its_form_alone() -> None:
    assert compute_score("rlla", text(response="hi"), text(response="ho"), None)["score"] == 1.0
    assert compute_score("rlla", "hi", text(response="ho"), None)["score"] == 0.0


def test_a_score_is_the_sum_of_form_and_calls() -> None:
    assert compute_score("rlla", text(WEATHER), text(WEATHER), {}) == {"score": 4.0, "format": 1.0, "correctness": 3.0}
    half = compute_score("rlla", text(call("weather", city="Rome", day=2)) + "\n", text(WEATHER), {}, step=7)
    assert half == {"score": 1 - 3 + 6 * 3 / 4, "format": 1.0, "correctness": -3 + 6 * 3 / 4}


def test_a_ground_truth_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(DataError, match="ground truth"):
        compute_score("rlla", text(WEATHER), "<tool_call>\nbroken\n</tool_call>", None)


def test_what_was_judged_is_logged_on_request(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="verl"):
        compute_tool_call_reward([WEATHER], [WEATHER], 3.0, -3.0, do_print=False)
        assert caplog.text == ""
        compute_tool_call_reward([WEATHER], [WEATHER], 3.0, -3.0, do_print=True)
    assert "weather" in caplog.text and "3.0" in caplog.text
