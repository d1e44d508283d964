# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics of a batch: each number against the plain formula, and none is NaN on an empty or aborted batch."""

import math

import numpy as np
import pytest
import torch

from verl.protocol import DataProto
from verl.trainer.ppo.metric_utils import (
    _compute_response_info,
    compute_data_metrics,
    compute_gdpo_metrics,
    compute_throughout_metrics,
    compute_timing_metrics,
    compute_variance_proxy_metrics,
    rollout_mismatch_metrics,
    scores_of,
)

P, T = 3, 5


def batch(seed: int = 0, lengths: tuple[int, ...] = (5, 3, 1, 4), **columns) -> DataProto:
    rng = np.random.default_rng(seed)
    rows = len(lengths)
    response = (np.arange(T) < np.array(lengths)[:, None]).astype(np.int64)
    prompt = (np.arange(P) >= np.arange(rows)[:, None] % P).astype(np.int64)
    names = "token_level_scores token_level_rewards advantages returns values old_log_probs rollout_log_probs"
    tensors = {name: torch.tensor(rng.random((rows, T)) * response) for name in [*names.split(), "sum_pi_squared"]}
    tensors |= {
        "responses": torch.ones(rows, T, dtype=torch.int64),
        "attention_mask": torch.tensor(np.concatenate([prompt, response], 1)),
        "response_mask": torch.tensor(response),
    }
    non_tensors = {name: np.array(value, dtype=object) for name, value in columns.items()}
    return DataProto.from_dict(tensors=tensors, non_tensors=non_tensors)


def numpy_of(data: DataProto, name: str) -> np.ndarray:
    return data.batch[name].numpy()


def expected_spread(name: str, values: np.ndarray) -> dict[str, float]:
    return {f"{name}/mean": values.mean(), f"{name}/max": values.max(), f"{name}/min": values.min()}


def test_every_number_equals_its_plain_formula() -> None:
    data = batch(__num_turns__=[2, 4, 2, 8], tool_call_counts=[0, 1, 0, 3])
    mask = numpy_of(data, "response_mask").astype(bool)
    returns, values = (numpy_of(data, name)[mask] for name in ("returns", "values"))
    lengths, prompts = np.array([5, 3, 1, 4]), np.array([3, 2, 1, 3])
    expected = {
        **expected_spread("critic/score", numpy_of(data, "token_level_scores").sum(-1)),
        **expected_spread("critic/rewards", numpy_of(data, "token_level_rewards").sum(-1)),
        **expected_spread("critic/advantages", numpy_of(data, "advantages")[mask]),
        **expected_spread("critic/returns", returns),
        **expected_spread("critic/values", values),
        "critic/vf_explained_var": 1 - (returns - values).var(ddof=1) / (returns.var(ddof=1) + 1e-5),
        **expected_spread("response_length", lengths),
        "response_length/clip_ratio": 0.25,
        **expected_spread("response_length_non_aborted", lengths),
        "response_length_non_aborted/clip_ratio": 0.25,
        "response/aborted_ratio": 0.0,
        **expected_spread("prompt_length", prompts),
        "prompt_length/clip_ratio": 0.5,
        **expected_spread("num_turns", np.array([2, 4, 2, 8])),
        **expected_spread("tool_call_counts", np.array([0, 1, 0, 3])),
    }
    assert compute_data_metrics(data) == pytest.approx(expected)
    without = compute_data_metrics(data, use_critic=False)
    assert set(expected) - set(without) == {name for name in expected if "values" in name or "vf_" in name}


def test_aborted_and_unscorable_trajectories_are_left_out_of_scores() -> None:
    data = batch(lengths=(5, 0, 2, 4))
    data.batch["token_level_scores"][1, 0] = 100.0
    data.batch["token_level_scores"][2, 0] = math.nan
    found = compute_data_metrics(data)
    kept = numpy_of(data, "token_level_scores")[[0, 3]].sum(-1)
    assert found["critic/score/mean"] == pytest.approx(kept.mean()) and found["critic/score/max"] < 100
    assert found["response/aborted_ratio"] == 0.25
    assert (found["response_length/min"], found["response_length_non_aborted/min"]) == (0.0, 2.0)
    assert found["response_length_non_aborted/mean"] == pytest.approx(11 / 3)


@pytest.mark.parametrize("lengths", [(0, 0), ()])
def test_a_batch_without_a_token_gives_zeros(lengths: tuple[int, ...]) -> None:
    found = compute_data_metrics(batch(lengths=lengths))
    assert all(math.isfinite(value) for value in found.values())
    assert found["critic/score/mean"] == 0.0


def test_the_stop_reason_decides_what_was_cut() -> None:
    # The context limit cut all three before the configured length of responses.
    data = batch(lengths=(4, 3, 2), stop_reason=["length", "length", "length"])
    assert compute_data_metrics(data)["response_length/clip_ratio"] == 1.0
    assert compute_data_metrics(batch(lengths=(5, 3, 2)))["response_length/clip_ratio"] == pytest.approx(1 / 3)
    partly = batch(lengths=(5, 3, 2), stop_reason=["stop", None, "length"])
    assert compute_data_metrics(partly)["response_length/clip_ratio"] == pytest.approx(1 / 3)


def test_the_engines_own_word_counts_before_completed() -> None:
    # Our servers say "completed" of every answer that was not aborted, and what ended it in `finish_reason`.
    completed = ["completed"] * 3
    data = batch(lengths=(4, 3, 2), stop_reason=completed, finish_reason=["length", "stop", "length"])
    assert compute_data_metrics(data)["response_length/clip_ratio"] == pytest.approx(2 / 3)
    assert compute_data_metrics(batch(lengths=(5, 3, 2), stop_reason=completed))[
        "response_length/clip_ratio"
    ] == pytest.approx(1 / 3)
    # An answer that ends by itself on the last token is not cut; a row without a word goes by its width.
    data = batch(lengths=(5, 5, 2), stop_reason=completed, finish_reason=["stop", None, "length"])
    assert compute_data_metrics(data)["response_length/clip_ratio"] == pytest.approx(2 / 3)


def test_a_failed_reward_is_no_score_of_zero_and_a_given_value_is_one() -> None:
    data = batch(reward_error=[None, "boom", "boom", None])
    scores = torch.zeros(4, T, dtype=torch.float64)
    scores[:, 0] = torch.tensor([3.0, 0.0, -1.0, 1.0])
    data.batch["token_level_scores"] = data.batch["token_level_rewards"] = scores
    data.batch["response_mask"][1] = 0
    found = compute_data_metrics(data)
    assert found["critic/score/mean"] == found["critic/rewards/mean"] == pytest.approx(1.0)
    assert (found["critic/score/min"], found["critic/score/max"]) == (-1.0, 3.0)
    assert scores_of(data, "token_level_scores") == [3.0, None, -1.0, 1.0]
    # A row that rejection sampling masked has its score all the same.
    data.batch["response_mask"][0] = 0
    assert compute_data_metrics(data)["critic/score/max"] == 3.0


def test_lengths_of_prompts_and_responses() -> None:
    info = _compute_response_info(batch())
    assert info["prompt_length"].tolist() == [3, 2, 1, 3] and info["response_length"].tolist() == [5, 3, 1, 4]
    assert info["response_mask"].shape == (4, T)


def test_timers_are_divided_by_the_tokens_they_worked_on() -> None:
    found = compute_timing_metrics(batch(), {"gen": 2.6, "adv": 1.1, "step": 9.0})
    assert found == pytest.approx(
        {
            "timing_s/gen": 2.6,
            "timing_s/adv": 1.1,
            "timing_s/step": 9.0,
            "timing_per_token_ms/gen": 200.0,
            "timing_per_token_ms/adv": 50.0,
        }
    )
    assert compute_timing_metrics(batch(lengths=(0, 0)), {"gen": 2.0})["timing_per_token_ms/gen"] == 0.0


def test_throughput_is_per_device_and_never_divides_by_zero() -> None:
    data = batch()
    data.meta_info["global_token_num"] = [10, 30]
    assert compute_throughout_metrics(data, {"step": 4.0}, n_gpus=2) == {
        "perf/total_num_tokens": 40,
        "perf/time_per_step": 4.0,
        "perf/throughput": 5.0,
    }
    assert compute_throughout_metrics(data, {"step": 4.0}, n_gpus=0)["perf/throughput"] == 0.0


def test_the_mismatch_is_measured_where_log_probs_were_recomputed() -> None:
    data = batch()
    found = rollout_mismatch_metrics(data)
    mask = numpy_of(data, "response_mask").astype(bool)
    rollout, trainer = (np.exp(numpy_of(data, name)[mask]) for name in ("rollout_log_probs", "old_log_probs"))
    difference = np.abs(rollout - trainer)
    assert found["training/rollout_probs_diff_valid"] == 1
    assert found["training/rollout_probs_diff_mean"] == pytest.approx(difference.mean())
    assert found["training/rollout_probs_diff_max"] == pytest.approx(difference.max())
    assert found["training/rollout_probs_diff_std"] == pytest.approx(difference.std(ddof=1))
    assert found["training/rollout_actor_probs_pearson_corr"] == pytest.approx(np.corrcoef(rollout, trainer)[0, 1])
    assert found["rollout_corr/k3_kl"] > 0 and 0 < found["rollout_corr/ess"] <= 1
    data.meta_info["rollout_correction"] = {"bypass_mode": True}
    assert rollout_mismatch_metrics(data) == {"training/rollout_probs_diff_valid": 0}


def test_the_variance_proxies_follow_their_formulas() -> None:
    data = batch()
    mask = numpy_of(data, "response_mask")
    energy = ((1 - 2 * np.exp(numpy_of(data, "old_log_probs")) + numpy_of(data, "sum_pi_squared")) * mask).sum(-1)
    advantage = (numpy_of(data, "advantages") * mask).sum(-1) / mask.sum(-1)
    total = (advantage**2 * energy).mean()
    expected = {
        "variance_proxy/proxy1_signal_strength": 0.01,
        "variance_proxy/proxy2_total_power": total,
        "variance_proxy/proxy3_pure_noise": max(0.0, (total - 0.01) / 3),
        "variance_proxy/expected_a_squared": (advantage**2).mean(),
        "variance_proxy/expected_w": energy.mean(),
    }
    assert compute_variance_proxy_metrics(data, gradient_norm=0.1) == pytest.approx(expected)
    data.batch["rollout_is_weights"] = torch.full((4, T), 2.0, dtype=torch.float64)
    assert compute_variance_proxy_metrics(data)["variance_proxy/expected_w"] == pytest.approx(4 * energy.mean())
    assert "variance_proxy/proxy1_signal_strength" not in compute_variance_proxy_metrics(data)
    assert compute_variance_proxy_metrics(data.select(["responses"])) == {}


def test_separate_rewards_are_summarised_without_the_missing_ones() -> None:
    found = compute_gdpo_metrics(batch(format=[1.0, None, 0.0, math.nan]), ["format", "absent"])
    assert found["gdpo/format/mean"] == 0.5 and found["gdpo/format/std"] == 0.5
    assert found["gdpo/absent/max"] == 0.0
