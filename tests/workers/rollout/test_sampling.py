# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Request parameters from the rollout configuration."""

from typing import Any

import pytest

from verl.workers.rollout.sampling import continuation_seed, response_budget, sampling_params

TRAIN = {
    "temperature": 0.3,
    "top_p": 0.9,
    "top_k": 5,
    "repetition_penalty": 1.2,
    "ignore_eos": True,
    "seed": 7,
    "calculate_log_probs": True,
}


def test_each_sampling_field_reaches_a_training_request() -> None:
    params = sampling_params(TRAIN, validate=False)
    assert {key: params[key] for key in ("temperature", "top_p", "top_k", "repetition_penalty", "ignore_eos")} == {
        "temperature": 0.3,
        "top_p": 0.9,
        "top_k": 5,
        "repetition_penalty": 1.2,
        "ignore_eos": True,
    }
    assert params["logprobs"] is True


def test_validation_uses_its_own_values_where_it_has_them() -> None:
    rollout = TRAIN | {"val_kwargs": {"temperature": 0, "top_p": 1.0, "top_k": -1, "repetition_penalty": None}}
    params = sampling_params(rollout, validate=True)
    assert (params["temperature"], params["top_p"], params["top_k"]) == (0, 1.0, -1)
    assert params["repetition_penalty"] == 1.2, "null in val_kwargs means not set there"
    assert params["logprobs"] is False
    assert sampling_params(rollout, validate=False)["temperature"] == 0.3


def test_no_request_carries_the_engine_seed() -> None:
    assert "seed" not in sampling_params(TRAIN, validate=False)
    assert "seed" not in sampling_params(TRAIN | {"val_kwargs": {"seed": 3}}, validate=True)


def test_do_sample_false_means_greedy_in_training() -> None:
    assert sampling_params(TRAIN | {"do_sample": False})["temperature"] == 0.0


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k", "repetition_penalty", "ignore_eos", "val_kwargs"])
@pytest.mark.parametrize("validate", [False, True])
def test_null_counts_as_not_set(name: str, validate: bool) -> None:
    rollout: dict[str, Any] = TRAIN | {"val_kwargs": {"temperature": None}, name: None}
    assert None not in sampling_params(rollout, validate=validate).values()


@pytest.mark.parametrize(
    ("params", "prompt_tokens", "budget"),
    [
        ({}, 10, 8),  # a short prompt: the response length
        ({}, 18, 6),  # a prompt that has grown over turns: what the two lengths together leave
        ({}, 40, 0),
        ({"max_tokens": 3}, 40, 3),  # the caller's own limit
        ({"max_new_tokens": 5, "max_tokens": None}, 1, 5),
    ],
)
def test_budget_is_the_callers_limit_or_what_the_lengths_leave(
    params: dict[str, Any], prompt_tokens: int, budget: int
) -> None:
    assert response_budget(params, prompt_tokens, prompt_length=16, response_length=8) == budget


def test_continuation_seeds_differ_from_the_first_and_from_each_other() -> None:
    seeds = [continuation_seed(11, kept) for kept in range(200)]
    assert seeds[0] == 11
    assert len(set(seeds)) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seeds == [continuation_seed(11, kept) for kept in range(200)], "a replay meets the same seeds"
