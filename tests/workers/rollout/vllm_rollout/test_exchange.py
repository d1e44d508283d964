# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Requests in vLLM's terms and answers in ours, with vLLM's own classes and no engine."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from verl.errors import ConfigError
from verl.workers.rollout.schemas import VersionSpan, version_of_each_token
from verl.workers.rollout.vllm_rollout import exchange, vllm_symbols


@pytest.fixture(scope="module")
def vllm() -> SimpleNamespace:
    return vllm_symbols.load()


def completion(vllm: SimpleNamespace, reason: str, rows: list[list[float]] | None = None, spans: Any = None) -> Any:
    logprobs = None
    if rows is not None:
        logprobs = vllm.FlatLogprobs()
        for row in rows:
            ids = range(len(row))
            logprobs.append_fast(list(ids), row, iter(ids), [None] * len(row))
    output = vllm.CompletionOutput(
        index=0,
        text="",
        token_ids=[5, 6],
        cumulative_logprob=None,
        logprobs=logprobs,
        finish_reason=reason,
        weight_versions=spans,
    )
    return SimpleNamespace(outputs=[output])


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("abort", "aborted"), ("stop", "completed"), ("length", "completed"), ("repetition", "repetition")],
)
def test_the_engines_reason_becomes_ours_and_is_kept(vllm: SimpleNamespace, reason: str, expected: str) -> None:
    output = exchange.to_token_output(completion(vllm, reason), {}, serving_version=4)
    assert (output.stop_reason, output.extra_fields["finish_reason"]) == (expected, reason)
    assert output.extra_fields["global_steps"] == 4
    assert output.log_probs is None


def test_the_log_prob_of_the_sampled_token_is_taken_among_alternatives(vllm: SimpleNamespace) -> None:
    rows = [[-0.5, -0.1, -3.0], [-0.25, -0.2, -4.0]]
    output = exchange.to_token_output(completion(vllm, "stop", rows), {"logprobs": 2}, serving_version=0)
    assert output.log_probs == [-0.5, -0.25]


def test_spans_become_a_version_per_token(vllm: SimpleNamespace) -> None:
    spans = [SimpleNamespace(version="7", start=0, end=1), SimpleNamespace(version="8", start=1, end=2)]
    output = exchange.to_token_output(completion(vllm, "stop", spans=spans), {}, serving_version=9)
    assert output.extra_fields["token_versions"] == [VersionSpan(7, 0, 1), VersionSpan(8, 1, 2)]
    assert version_of_each_token(output) == [7, 8]
    one = exchange.to_token_output(completion(vllm, "stop", spans=spans[:1]), {}, serving_version=9)
    assert "token_versions" not in one.extra_fields
    assert one.extra_fields["global_steps"] == 7


@pytest.mark.parametrize(
    ("asked", "expected"), [(None, None), (False, None), (True, 0), (3, 3)], ids=["unset", "no", "sampled", "three"]
)
def test_log_probs_of_the_sampled_token_are_zero_alternatives(
    vllm: SimpleNamespace, asked: Any, expected: int | None
) -> None:
    params = exchange.to_sampling_params({"logprobs": asked}, 4, vllm, has_tokenizer=False)
    assert params.logprobs == expected


def test_every_sampling_field_reaches_the_engine(vllm: SimpleNamespace) -> None:
    asked = {
        "temperature": 0.3,
        "top_p": 0.9,
        "top_k": 5,
        "repetition_penalty": 1.2,
        "ignore_eos": True,
        "seed": 9,
        "min_tokens": 2,
        "stop_token_ids": [3],
        "logit_bias": {9: -100.0, 10: -100.0},
        "max_new_tokens": 99,
        "min_p": None,
    }
    before = copy.deepcopy(asked)
    params = exchange.to_sampling_params(asked, 4, vllm, has_tokenizer=False)
    assert asked == before
    for name in ("temperature", "top_p", "top_k", "repetition_penalty", "ignore_eos", "seed", "min_tokens"):
        assert getattr(params, name) == asked[name]
    assert params.stop_token_ids == [3] and params.logit_bias == {9: -100.0, 10: -100.0}
    assert params.max_tokens == 4
    assert params.detokenize is False


def test_stop_strings_need_a_tokenizer(vllm: SimpleNamespace) -> None:
    with pytest.raises(ConfigError, match="skip_tokenizer_init=false"):
        exchange.to_sampling_params({"stop": ["x"]}, 4, vllm, has_tokenizer=False)
    assert exchange.to_sampling_params({"stop": ["x"]}, 4, vllm, has_tokenizer=True).detokenize is True


def test_pictures_travel_with_the_tokens(vllm: SimpleNamespace) -> None:
    assert exchange.to_prompt([1, 2], None, [], vllm) == {"prompt_token_ids": [1, 2]}
    assert exchange.to_prompt([1], ["picture"], None, vllm)["multi_modal_data"] == {"image": ["picture"]}
