# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Scorers of text answers, case by case."""

import re
from typing import Any

import pytest

from verl.errors import ConfigError, RewardError
from verl.utils.reward_score import (
    SCORERS,
    default_compute_score,
    geo3k,
    gsm8k,
    math_batch,
    math_dapo,
    math_reward,
    math_verify,
    prime_math,
    search_r1_like_qa_em,
)
from verl.utils.reward_score.boxed import boxed_content


@pytest.mark.parametrize(
    ("answer", "strict", "flexible"),
    [
        ("so #### 42", "42", "42"),
        ("#### 1,234", "1234", "1,234"),
        ("#### -7 then #### 8", "8", "8"),
        ("it is 42", None, "42"),
        ("it is 42.", None, "42."),
        ("about 1,234 of them", None, "1,234"),
        ("####42", None, "42"),
        ("no number . .", None, None),
        ("#### 3.50", "3.50", "3.50"),
        ("#### 5" + " " * 400, None, None),
    ],
)
def test_gsm8k_extraction(answer: str, strict: str | None, flexible: str | None) -> None:
    assert gsm8k.extract_solution(answer, "strict") == strict
    assert gsm8k.extract_solution(answer, "flexible") == flexible


def test_gsm8k_scores() -> None:
    assert gsm8k.compute_score("#### 42", "42") == 1.0
    assert gsm8k.compute_score("#### 41", "42", format_score=0.1) == 0.1
    assert gsm8k.compute_score("42", "42") == 0.0 and gsm8k.compute_score("42", "42", method="flexible") == 1.0
    with pytest.raises(ConfigError):
        gsm8k.extract_solution("1", "loose")


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{1} and \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed 5$ done", "5"),
        (r"\fbox{x}", "x"),
        (r"\boxed{never closed", None),
        (r"\boxed{a{b}c}", "a{b}c"),
        ("none", None),
    ],
)
def test_the_last_box(text: str, content: str | None) -> None:
    assert boxed_content(text) == content


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac12", r"\frac{1}{2}"),
        ("1/2", r"\frac{1}{2}"),
        ("0.5", r"\frac{1}{2}"),
        (".5", r"\dfrac{1}{2}"),
        (r"\sqrt3", r"\sqrt{3}"),
        (r"5\text{ cm}", "5"),
        (r"90^\circ", "90"),
        (r"50\%", "50"),
        ("x = 3", "3"),
        (r"\left( 1, 2 \right)", "(1,2)"),
        (r"\tfrac{a}{b}", r"\frac{a}{b}"),
        (r"\$7", "7"),
    ],
)
def test_math_answers_that_are_one(one: str, other: str) -> None:
    assert math_reward.is_equiv(one, other)
    assert math_reward.compute_score(rf"thus \boxed{{{one}}}", other) == 1.0


@pytest.mark.parametrize(("one", "other"), [("2", "3"), (r"\frac{1}{3}", "1/2"), ("(1,2)", "[1,2]"), ("12", "1 3")])
def test_math_answers_that_differ(one: str, other: str) -> None:
    assert not math_reward.is_equiv(one, other)


def test_math_needs_a_box() -> None:
    assert math_reward.compute_score("the answer is 5", "5") == 0.0
    assert math_reward.is_equiv(None, None) and not math_reward.is_equiv(None, "1")
    assert math_reward.remove_boxed(math_reward.last_boxed_only_string(r"\boxed{7}")) == "7"
    with pytest.raises(RewardError):
        math_reward.remove_boxed("7")
    assert math_batch.compute_score_batched(["d"] * 2, [r"\boxed{1}", r"\boxed{2}"], ["1", "3"], [{}] * 2) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("answer", "truth", "right"),
    [
        ("Answer: 1,234", "1234", True),
        ("answer :  $\\frac12$ ", "\\frac{1}{2}", True),
        ("Answer: 5 dollars", "5", True),
        ("Answer: x=7", "7", True),
        ("Answer: 3\nAnswer: 4", "4", True),
        ("Answer: 3", "4", False),
        ("4", "4", False),
        ("Answer: 4" + " " * 400, "4", False),
        ("Answer: \\boxed{12}", "12", True),
        ("Answer: \\text{east}", "east", True),
    ],
)
def test_dapo_answers(answer: str, truth: str, right: bool) -> None:
    result = math_dapo.compute_score(answer, truth)
    assert (result["score"], result["acc"]) == ((1.0, True) if right else (-1.0, False))


def test_dapo_by_box_looks_at_the_end_only() -> None:
    assert math_dapo.compute_score(r"so \boxed{7}", "7", strict_box_verify=True)["acc"]
    far = r"\boxed{7}" + " " * 120
    assert math_dapo.compute_score(far, "7", strict_box_verify=True) == {"score": -1.0, "acc": False, "pred": None}
    assert math_dapo.is_correct_strict_box(far, "7", pause_tokens_index=[0, 1, 2, 50]) == (1, "7")
    assert math_dapo.is_correct_minerva("Answer: 7", r"\boxed{7}", gt_need_extract=True)[0]
    assert math_dapo.compute_score("nothing", "7")["pred"] == "[INVALID]"


@pytest.mark.parametrize(
    ("answer", "truth", "right"),
    [
        (r"\boxed{\frac{1}{2}}", "0.5", True),
        (r"The answer is 1,000.", "1000", True),
        (r"\boxed{(1, 2)}", "(1,2)", True),
        (r"\boxed{(1, 2]}", "(1,2)", False),
        (r"\boxed{x^2+2x+1}", "(x+1)^2", True),
        (r"\boxed{2\pi}", "6.28", True),
        (r"\boxed{5 \text{ cm}}", "5", True),
        (r"\boxed{3}", "4", False),
        (r"\boxed{apple}", "pear", False),
        (r"\boxed{\sqrt{8}}", r"2\sqrt{2}", True),
        ("", "4", False),
    ],
)
def test_numina_answers(answer: str, truth: str, right: bool) -> None:
    assert prime_math.compute_score(answer, truth)[0] is right


def test_numbers_within_a_tolerance_and_as_percentages() -> None:
    assert prime_math.math_equal("0.33333", "1/3") and prime_math.math_equal("50", "0.5")
    assert not prime_math.math_equal("50", "0.5", include_percentage=False)
    assert prime_math.split_tuple("1,234") == ["1234"] and prime_math.split_tuple("(1, 2)") == ["1", "2"]
    assert not prime_math.grade_answer(None, "1")


@pytest.mark.parametrize(
    ("answer", "truth", "score"),
    [(r"\boxed{\frac{2}{4}}", "1/2", 1.0), (r"$\{1, 2\}$", r"\{2, 1\}", 1.0), (r"\boxed{7}", "8", 0.0), ("", "8", 0.0)],
)
def test_math_verify(answer: str, truth: str, score: float) -> None:
    assert math_verify.compute_score(answer, truth) == score


def test_geometry_weighs_format_and_accuracy() -> None:
    full = r"<think>hm</think> \boxed{3}"
    assert geo3k.compute_score(full, "3") == pytest.approx(1.0)
    assert geo3k.compute_score(full, "4") == pytest.approx(0.1)
    assert geo3k.compute_score(r"\boxed{3}", "3") == pytest.approx(0.9)
    assert geo3k.acc_reward("3", "3", use_boxed=False) == 1.0 and geo3k.acc_reward("3", "3") == 0.0


def test_search_answers() -> None:
    truth = {"target": ["The Beatles", "Beatles"]}
    score = search_r1_like_qa_em.compute_score
    assert score("<answer> the beatles! </answer>", truth) == 1.0
    assert score("<answer>x</answer><answer>Beatles</answer>", truth) == 1.0
    assert score("<answer>Stones</answer>", truth, format_score=0.2) == 0.2
    assert score("Beatles", truth) == 0.0
    assert score("<answer>" * 10 + "<answer>Beatles</answer>", truth, score=2.0) == 0.0
    assert score("<answer>a</answer>" * 10 + "<answer>Beatles</answer>", truth, score=2.0) == 0.5
    assert search_r1_like_qa_em.compute_score_subem("<answer>by The Beatles in 1969</answer>", truth) == 1.0
    assert search_r1_like_qa_em.em_check("An Apple", "apple") == 1


TRUTHS: dict[str, tuple[str, Any]] = {
    "gsm8k": ("#### 4", "4"),
    "math_reward": (r"\boxed{4}", "4"),
    "math_dapo": ("Answer: 4", "4"),
    "prime_math": (r"\boxed{4}", "4"),
    "geo3k": (r"<think></think>\boxed{4}", "4"),
    "search_r1_like_qa_em": ("<answer>4</answer>", {"target": ["4"]}),
    "code": ("```python\nprint(input())\n```", {"inputs": ["4"], "outputs": ["4\n"]}),
}


@pytest.mark.parametrize("source", [*sorted(SCORERS), "aime2024"])
def test_each_data_source_has_a_scorer(source: str) -> None:
    answer, truth = TRUTHS[SCORERS.get(source, "math_dapo")]
    result = default_compute_score(source, answer, truth, extra_info={"index": 1}, anything="else")
    assert (result["score"] if isinstance(result, dict) else result) == 1.0


def test_an_unknown_source_is_an_error_with_a_way_out() -> None:
    with pytest.raises(RewardError, match=r"custom_reward_function") as error:
        default_compute_score("mystery", "1", "1")
    assert re.search("mystery", str(error.value))
