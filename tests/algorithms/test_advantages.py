# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Advantages: the awkward rows, and what must not change a result."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.algorithms.advantages import (
    ADV_ESTIMATOR_REGISTRY,
    AdvantageEstimator,
    get_adv_estimator_fn,
    register_adv_est,
)
from verl.algorithms.advantages.reweight import compute_pf_ppo_reweight_data
from verl.errors import ConfigError
from verl.protocol import DataProto

NAN = float("nan")
NAMES = sorted(ADV_ESTIMATOR_REGISTRY)


def batch(seed: int, rows: int = 8, width: int = 6, groups: int = 3) -> dict:
    """Every input that some estimator asks for."""
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)

    def uniform() -> torch.Tensor:
        return torch.rand(rows, width, generator=generator, dtype=torch.float64)

    mask = (uniform() < 0.75).long()
    mask[:, 0] = 1
    return {
        "token_level_rewards": uniform() * (uniform() < 0.5),
        "response_mask": mask,
        "values": uniform(),
        "index": rng.integers(0, groups, rows).astype(str).astype(object),
        "reward_baselines": torch.rand(rows, generator=generator, dtype=torch.float64),
        "old_log_probs": -uniform(),
        "sum_pi_squared": uniform(),
        "rollout_is_weights": uniform() + 0.5,
        "columns": {"r1": rng.normal(size=rows), "r2": rng.normal(size=rows)},
    }


def call(name: str, b: dict) -> torch.Tensor:
    """The estimator by upstream's calling convention."""
    inputs = {key: b[key] for key in ("token_level_rewards", "response_mask")}
    if name == "gae":
        return get_adv_estimator_fn(name)(**inputs, values=b["values"], gamma=0.95, lam=0.9)
    inputs["config"] = {"gamma": 0.95, "gdpo_reward_keys": ["r1", "r2"]}
    if name != "reinforce_plus_plus":
        inputs["index"] = b["index"]
    if name == "remax":
        inputs["reward_baselines"] = b["reward_baselines"]
    if name == "gdpo":
        inputs |= {"non_tensor_batch": b["columns"], "batch": {}}
    if name.endswith("optimal_token_baseline"):
        inputs |= {key: b[key] for key in ("old_log_probs", "sum_pi_squared", "rollout_is_weights")}
    return get_adv_estimator_fn(name)(**inputs)


def rows_of(b: dict, rows: np.ndarray) -> dict:
    """The batch with these rows, in this order."""
    chosen = {key: value[rows] for key, value in b.items() if key != "columns"}
    return chosen | {"columns": {key: value[rows] for key, value in b["columns"].items()}}


def padded(b: dict, extra: int) -> dict:
    """The batch with more padding on the right, filled with garbage."""
    wide = dict(b)
    for key, value in b.items():
        if isinstance(value, torch.Tensor) and value.dim() == 2:
            fill = 0 if key == "response_mask" else NAN
            wide[key] = torch.nn.functional.pad(value, (0, extra), value=fill)
    return wide


def test_the_fourteen_names_are_there() -> None:
    assert set(NAMES) == {member.value for member in AdvantageEstimator}
    assert get_adv_estimator_fn(AdvantageEstimator.GRPO) is get_adv_estimator_fn("grpo")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'grpo'"):
        get_adv_estimator_fn("gpro")


def test_an_estimator_of_ones_own_is_found_and_cannot_be_replaced() -> None:
    @register_adv_est("test_own_estimator")
    def own(token_level_rewards, response_mask, **kwargs):
        return token_level_rewards, token_level_rewards

    assert get_adv_estimator_fn("test_own_estimator") is own
    with pytest.raises(ConfigError, match="already registered"):
        register_adv_est("test_own_estimator")(lambda **kwargs: None)


@pytest.mark.parametrize("name", NAMES)
def test_advantages_are_exactly_zero_outside_the_mask(name: str) -> None:
    b = batch(0)
    advantages, returns = call(name, b)
    assert torch.equal(advantages * (1 - b["response_mask"]), torch.zeros_like(advantages))
    assert torch.isfinite(advantages).all() and torch.isfinite(returns).all()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_order_of_rows_does_not_matter(name: str, seed: int) -> None:
    b, order = batch(seed), np.random.default_rng(seed).permutation(8)
    for straight, shuffled in zip(call(name, b), call(name, rows_of(b, order)), strict=True):
        torch.testing.assert_close(straight[order], shuffled, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), extra=st.integers(1, 5))
def test_the_amount_of_padding_does_not_matter(name: str, seed: int, extra: int) -> None:
    b = batch(seed)
    for narrow, wide in zip(call(name, b), call(name, padded(b, extra)), strict=True):
        torch.testing.assert_close(narrow, wide[:, :6], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["rejected", "unscorable"])
def test_a_row_that_takes_no_part_changes_nothing_for_the_others(name: str, how: str) -> None:
    b = batch(3)
    lost, others = 2, np.array([0, 1, 3, 4, 5, 6, 7])
    if how == "rejected":
        b["response_mask"][lost] = 0
    else:
        b["token_level_rewards"][lost, 0] = NAN
    advantages, _ = call(name, b)
    assert torch.equal(advantages[lost], torch.zeros(6, dtype=torch.float64))
    torch.testing.assert_close(advantages[others], call(name, rows_of(b, others))[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_rejected_rows_and_an_empty_batch_give_zeros(name: str) -> None:
    b = batch(0)
    b["response_mask"][:] = 0
    if name == "grpo_passk":
        b["index"][:] = "one"
    advantages, _ = call(name, b)
    assert torch.equal(advantages, torch.zeros_like(advantages))
    assert call(name, rows_of(b, np.zeros(0, dtype=int)))[0].shape == (0, 6)


@pytest.mark.parametrize("name", NAMES)
def test_no_gradient_flows_into_advantages(name: str) -> None:
    b = batch(0)
    b["token_level_rewards"].requires_grad_()
    assert not call(name, b)[0].requires_grad


def outcome(name: str, scores: list[float], mask: list[list[int]] | None = None, **kwargs) -> list[float]:
    rewards = torch.tensor(scores, dtype=torch.float32).unsqueeze(-1)
    keep = torch.ones_like(rewards) if mask is None else torch.tensor(mask)
    return get_adv_estimator_fn(name)(rewards, keep, index=np.zeros(len(scores)), **kwargs)[0].squeeze(-1).tolist()


@pytest.mark.parametrize("name", ["grpo", "grpo_vectorized"])
def test_near_equal_rewards_are_told_apart_and_equal_ones_give_exactly_zero(name: str) -> None:
    assert outcome(name, [1.0, 1.00001], epsilon=1e-6) == pytest.approx([-0.6196, 0.6196], abs=2e-4)
    assert outcome(name, [0.1, 0.1, 0.1]) == [0.0, 0.0, 0.0]


def test_an_unscorable_answer_is_left_out_of_its_group() -> None:
    assert outcome("grpo", [1.0, NAN, 0.0]) == pytest.approx([0.7071, 0.0, -0.7071], abs=1e-4)
    assert outcome("grpo", [NAN, NAN, NAN]) == [0.0, 0.0, 0.0]


def test_a_rejected_answer_does_not_shift_its_siblings() -> None:
    assert outcome("grpo", [1.0, 0.0, 5.0], [[1], [1], [0]]) == pytest.approx([0.7071, -0.7071, 0.0], abs=1e-4)


def test_the_reward_of_a_rejected_token_does_not_count() -> None:
    rewards, mask = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[1, 0], [1, 1]])
    advantages, _ = get_adv_estimator_fn("grpo")(rewards, mask, index=np.zeros(2))
    assert torch.equal(advantages, torch.zeros(2, 2))


@pytest.mark.parametrize("name", ["rloo", "rloo_vectorized", "opo", "grpo_vectorized", "grpo"])
def test_a_group_of_one_keeps_its_score(name: str) -> None:
    assert outcome(name, [2.0]) == pytest.approx([2.0], rel=1e-5)


def test_the_return_runs_on_across_tool_observations() -> None:
    rewards = torch.tensor([[0.0, 0.0, 0.0, 1.0]])
    with_tool, without = torch.tensor([[1, 0, 0, 1]]), torch.tensor([[1, 1]])
    _, returns = get_adv_estimator_fn("reinforce_plus_plus")(rewards, with_tool, config={"gamma": 0.5})
    _, plain = get_adv_estimator_fn("reinforce_plus_plus")(rewards[:, [0, 3]], without, config={"gamma": 0.5})
    assert returns[0, [0, 3]].tolist() == plain[0].tolist() == [0.5, 1.0]


def test_gae_over_a_dialogue_equals_gae_without_the_observations() -> None:
    b = batch(5, rows=4, width=9)
    keep = torch.zeros(4, 9, dtype=torch.long)
    columns = [0, 1, 4, 5, 8]
    keep[:, columns] = 1
    estimate = get_adv_estimator_fn("gae")
    dialogue = estimate(b["token_level_rewards"], b["values"], keep, 0.9, 0.8)
    short = estimate(b["token_level_rewards"][:, columns], b["values"][:, columns], keep[:, columns], 0.9, 0.8)
    for long_form, short_form in zip(dialogue, short, strict=True):
        torch.testing.assert_close(long_form[:, columns], short_form)


def test_an_unscorable_row_teaches_the_critic_nothing() -> None:
    b = batch(1)
    b["token_level_rewards"][0, 0] = NAN
    _, returns = call("gae", b)
    assert torch.equal(returns[0], b["values"][0] * b["response_mask"][0])


def test_matching_by_token_number_is_matching_by_position_where_no_tool_speaks() -> None:
    b = batch(2)
    lengths = torch.tensor([6, 5, 4, 6, 1, 2, 3, 6])
    b["response_mask"] = (torch.arange(6) < lengths.unsqueeze(-1)).long()
    one, other = call("optimal_token_baseline", b), call("tir_optimal_token_baseline", b)
    torch.testing.assert_close(one[0], other[0])


@pytest.mark.parametrize(("method", "expected"), [("pow", {0, 3}), ("max_min", {0, 3}), ("max_random", {0, 1, 2, 3})])
def test_reweighting_draws_the_telling_answers(method: str, expected: set[int]) -> None:
    torch.manual_seed(0)
    scores = torch.tensor([[-2.0], [0.0], [0.0], [2.0]]).repeat(50, 1)
    data = DataProto.from_dict(tensors={"token_level_scores": scores}, non_tensors={"row": np.arange(200) % 4})
    drawn = compute_pf_ppo_reweight_data(data, method, 2.0)
    assert len(drawn) == 200 and set(drawn.non_tensor_batch["row"].tolist()) == expected
    with pytest.raises(ConfigError, match="reweight_method"):
        compute_pf_ppo_reweight_data(data, "sqrt")
