# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What counts as a score."""

from typing import Any

import numpy as np
import pytest
import torch

from verl.errors import RewardError
from verl.experimental.reward_loop.outcome import plain, split_result, to_number


@pytest.mark.parametrize(
    "value", [0.25, np.float32(0.25), np.float64(0.25), torch.tensor(0.25), torch.tensor([0.25]), np.array(0.25)]
)
def test_numbers_of_every_kind(value: Any) -> None:
    assert to_number(value) == 0.25 and type(to_number(value)) is float


def test_whole_numbers_and_truth_values() -> None:
    assert [to_number(value) for value in (1, True, np.int64(2), np.bool_(False))] == [1.0, 1.0, 2.0, 0.0]


@pytest.mark.parametrize(
    "value", [None, "0.5", [0.5], float("nan"), float("inf"), np.nan, torch.ones(2), np.ones(2), {}, object()]
)
def test_what_is_no_score_is_an_error_that_says_what_came(value: Any) -> None:
    with pytest.raises(RewardError, match="the reward function returned"):
        to_number(value)


def test_a_bare_number_is_also_the_accuracy_and_a_dict_keeps_its_keys() -> None:
    assert split_result(1) == (1.0, {"acc": 1.0})
    score, extras = split_result({"score": np.float32(0.5), "pred": "7", "probs": torch.tensor([0.1, 0.9])})
    assert score == 0.5 and extras["score"] == 0.5 and extras["pred"] == "7"
    assert extras["probs"] == pytest.approx([0.1, 0.9])
    with pytest.raises(RewardError, match="without 'score'"):
        split_result({"acc": 1.0})


def test_extras_are_plain_at_any_depth() -> None:
    assert plain({1: (np.int64(2), {"x": np.array([True])}), "o": None}) == {"1": [2, {"x": [True]}], "o": None}
    assert plain(object()).startswith("<object")
