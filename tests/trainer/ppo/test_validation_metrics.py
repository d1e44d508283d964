# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Validation statistics against a plain bootstrap, grouped by uid."""

import numpy as np
import pytest

from verl.trainer.ppo.validation_metrics import bootstrap_metric, calc_maj_val, process_validation_metrics


def plain_bootstrap(data: list, size: int, function, seed: int = 42) -> tuple[float, float]:
    random = np.random.RandomState(seed)
    values = [function([data[i] for i in random.choice(len(data), size=size, replace=True)]) for _ in range(1000)]
    return np.mean(values), np.std(values)


def test_a_tie_of_votes_goes_to_the_answer_seen_first() -> None:
    data = [{"p": "b", "v": 0.0}, {"p": "a", "v": 1.0}, {"p": "a", "v": 0.5}, {"p": "b", "v": 0.2}]
    assert calc_maj_val(data, "p", "v") == 0.0
    assert calc_maj_val(data[1:], "p", "v") == 1.0


def test_bootstrap_draws_what_a_seeded_loop_draws() -> None:
    data = [0.1, 0.7, 0.3, 0.9, 0.2]
    found = bootstrap_metric(data, 3, [np.max, np.min, np.mean], seed=7)
    for got, function in zip(found, (np.max, np.min, np.mean), strict=True):
        assert got == pytest.approx(plain_bootstrap(data, 3, function, seed=7))


def test_all_statistics_of_a_prompt_equal_the_plain_bootstrap() -> None:
    rng = np.random.default_rng(0)
    values, votes = rng.random(6).tolist(), ["a", "b", "a", None, "c", "b"]
    found = process_validation_metrics(["s"] * 6, ["u"] * 6, {"acc": values, "pred": votes})["s"]["acc"]
    pairs = [{"v": value, "p": vote} for value, vote in zip(values, votes, strict=True)]
    assert found["mean@6"] == pytest.approx(np.mean(values)) and found["std@6"] == pytest.approx(np.std(values))
    for n in (2, 4, 6):
        for name, data, function in (
            ("best", values, np.max),
            ("worst", values, np.min),
            ("maj", pairs, lambda drawn: calc_maj_val(drawn, "p", "v")),
        ):
            got = found[f"{name}@{n}/mean"], found[f"{name}@{n}/std"]
            assert got == pytest.approx(plain_bootstrap(data, n, function))
    assert set(found) == {"mean@6", "std@6"} | {
        f"{name}@{n}/{part}" for name in ("best", "worst", "maj") for n in (2, 4, 6) for part in ("mean", "std")
    }


def test_prompts_with_the_same_text_are_two_groups() -> None:
    scores = {"reward": [1, 1, 0, 0], "prompt": ["same"] * 4}
    found = process_validation_metrics(["s"] * 4, ["u1", "u1", "u2", "u2"], scores)["s"]
    assert found["reward"]["mean@2"] == 0.5 and found["reward"]["best@2/mean"] == 0.5
    assert "prompt" not in found


def test_one_answer_each_gives_the_mean_only_and_sources_stay_apart() -> None:
    found = process_validation_metrics(["x", "y", "y"], ["1", "2", "3"], {"reward": [1.0, 0.0, True]})
    assert found == {"x": {"reward": {"mean@1": 1.0}}, "y": {"reward": {"mean@1": 0.5}}}


def test_answers_without_a_value_are_left_out() -> None:
    given = {"reward": [1.0, None, float("nan"), 0.0], "bonus": [None, None, None, np.float32(2.0)]}
    found = process_validation_metrics(["s"] * 4, ["u", "u", "u", "u"], given)["s"]
    assert found["reward"]["mean@2"] == 0.5 and found["bonus"] == {"mean@1": 2.0}
