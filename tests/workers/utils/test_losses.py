# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Losses of micro-batches: they add up to the mini-batch, and their metrics join over micro-batches and ranks."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.algorithms.kl import kl_penalty
from verl.algorithms.rollout_correction import apply_bypass_mode
from verl.algorithms.tensor_math import masked_mean
from verl.errors import ConfigError, DataError
from verl.protocol import DataProto
from verl.utils.metric import Metric, merge_metrics
from verl.workers.utils.losses import ppo_loss, sft_loss, value_loss

ACTOR = {
    "clip_ratio": 0.2,
    "loss_agg_mode": "token-mean",
    "entropy_coeff": 0.01,
    "use_kl_loss": True,
    "kl_loss_coef": 0.1,
    "kl_loss_type": "k3+",
    "policy_loss": {"loss_mode": "vanilla"},
}


def batch(seed: int = 0, rows: int = 6, width: int = 4) -> DataProto:
    g = torch.Generator().manual_seed(seed)

    def normal() -> torch.Tensor:
        return torch.randn(rows, width, generator=g, dtype=torch.float64)

    mask = (torch.rand(rows, width, generator=g) < 0.7).long()
    mask[:, 0] = 1
    old = -normal().abs() - 0.1
    names = {"rollout_log_probs": old, "old_log_probs": old, "ref_log_prob": old - 0.1, "advantages": normal()}
    names |= {"returns": normal(), "values": normal(), "response_mask": mask}
    return DataProto.from_dict(tensors=names)


def output(data: DataProto) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(99)
    old = data.batch["old_log_probs"]
    noise = torch.randn(old.shape, generator=g, dtype=torch.float64)
    return {
        "log_probs": (old + 0.3 * noise).requires_grad_(),
        "entropy": noise.abs(),
        "values": noise.clone().requires_grad_(),
    }


def in_parts(loss_fn, data: DataProto, out: dict, cut: int, ranks: int) -> tuple[torch.Tensor, list[dict]]:
    mask = data.batch["response_mask"]
    counts = {"batch_num_tokens": int(mask.sum()), "global_batch_size": len(data), "dp_size": ranks}
    parts = []
    for rows in (slice(0, cut), slice(cut, None)):
        micro = data.select_idxs(list(range(len(data)))[rows])
        parts.append(loss_fn({name: tensor[rows] for name, tensor in out.items()}, micro, **counts))
    return sum(loss for loss, _ in parts) / ranks, [metrics for _, metrics in parts]


@pytest.mark.parametrize(
    "loss_fn", [partial(ppo_loss, ACTOR), partial(value_loss, {"cliprange_value": 0.5}), partial(sft_loss, {})]
)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), cut=st.integers(1, 5), ranks=st.sampled_from([1, 2]))
def test_micro_batches_and_ranks_add_up_in_value_metrics_and_gradient(loss_fn, seed: int, cut: int, ranks: int) -> None:
    data = batch(seed)
    whole_out, parts_out = output(data), output(data)
    whole, metrics = loss_fn(whole_out, data)
    total, found = in_parts(loss_fn, data, parts_out, cut, ranks)
    torch.testing.assert_close(total, whole)
    whole.backward()
    total.backward()
    for name in ("log_probs", "values"):
        if whole_out[name].grad is not None:
            torch.testing.assert_close(parts_out[name].grad, whole_out[name].grad)
    for name, metric in metrics.items():
        on_ranks = [part[name] for part in found] if ranks == 2 else [merge_metrics(found)[name]]
        assert Metric.aggregate_dp(on_ranks) == pytest.approx(metric.aggregate(), rel=1e-5, abs=1e-7), name


def test_the_parts_of_the_actor_loss_are_policy_entropy_and_kl() -> None:
    data, mask = batch(), batch().batch["response_mask"]
    out = output(data)
    loss, metrics = ppo_loss(ACTOR, out, data)
    kl = masked_mean(kl_penalty(out["log_probs"], data.batch["ref_log_prob"], "k3"), mask)
    entropy = masked_mean(out["entropy"], mask)
    number = {name: metric.aggregate() for name, metric in metrics.items()}
    assert number["actor/kl_loss"] == pytest.approx(kl.item()) and number["actor/kl_coef"] == 0.1
    assert number["actor/entropy_loss"] == pytest.approx(entropy.item())
    assert loss.item() == pytest.approx(number["actor/pg_loss"] - 0.01 * entropy.item() + 0.1 * kl.item())
    assert {"actor/pg_clipfrac", "actor/ppo_kl", "actor/pg_clipfrac_lower"} <= set(number)
    with pytest.raises(DataError, match="entropy"):
        ppo_loss(ACTOR, {"log_probs": out["log_probs"]}, data)


def test_importance_weights_in_the_batch_enter_the_policy_loss() -> None:
    data, out = batch(), output(batch())
    plain, _ = ppo_loss({"clip_ratio": 0.2}, out, data)
    data.batch["rollout_is_weights"] = torch.full_like(data.batch["advantages"], 0.5)
    halved, _ = ppo_loss({"clip_ratio": 0.2}, out, data)
    torch.testing.assert_close(halved, plain / 2)


def test_a_bypassed_batch_is_corrected_inside_the_loss() -> None:
    data, out = batch(), output(batch())
    data.batch["rollout_log_probs"] = data.batch["old_log_probs"] - 0.2
    apply_bypass_mode(
        data, {"bypass_mode": True, "rollout_rs": "token_k2", "rollout_rs_threshold": 0.05}, {"loss_mode": "vanilla"}
    )
    assert torch.equal(data.batch["old_log_probs"], data.batch["rollout_log_probs"])
    loss, metrics = ppo_loss({"clip_ratio": 0.2, "policy_loss": {"loss_mode": "vanilla"}}, out, data)
    difference = (out["log_probs"] - data.batch["rollout_log_probs"]).detach()
    mask = data.batch["response_mask"].bool()
    rejected = ((0.5 * difference.square() > 0.05) & mask).sum() / mask.sum()
    assert metrics["rollout_corr/rollout_rs_masked_fraction"].aggregate() == pytest.approx(rejected.item(), rel=1e-6)
    assert 0 < rejected < 1 and {"rollout_corr/k3_kl", "rollout_corr/ess"} <= set(metrics)
    assert np.isfinite(loss.item())


def test_another_loss_keeps_its_form_in_bypass_mode_but_takes_no_correction() -> None:
    data, out = batch(), output(batch())
    gspo = {"clip_ratio": 0.2, "policy_loss": {"loss_mode": "gspo"}}
    before, _ = ppo_loss(gspo, out, data)
    apply_bypass_mode(data, {"bypass_mode": True}, gspo["policy_loss"])
    after, _ = ppo_loss(gspo, out, data)
    torch.testing.assert_close(before, after)
    with pytest.raises(ConfigError, match="loss_mode"):
        apply_bypass_mode(data, {"rollout_is": "token"}, gspo["policy_loss"])


def test_bypass_without_rollout_log_probs_says_what_to_set() -> None:
    data = batch()
    data.batch.pop("rollout_log_probs")
    with pytest.raises(DataError, match="calculate_log_probs=true"):
        apply_bypass_mode(data, {"bypass_mode": True})


def test_the_critic_loss_is_two_however_the_tokens_are_split() -> None:
    tensors = {"values": torch.zeros(4, 1), "returns": torch.full((4, 1), 2.0), "response_mask": torch.ones(4, 1)}
    data = DataProto.from_dict(tensors=tensors)
    loss_fn = partial(value_loss, {"cliprange_value": 100.0})
    assert loss_fn({"values": torch.zeros(4, 1)}, data)[0].item() == 2.0
    for cut in (3, 2):
        assert in_parts(loss_fn, data, {"values": torch.zeros(4, 1)}, cut, 1)[0].item() == 2.0


def test_supervised_loss_reads_the_end_of_a_longer_mask() -> None:
    data = DataProto.from_dict(tensors={"loss_mask": torch.tensor([[1, 1, 0, 1]])})
    loss, _ = sft_loss({}, {"log_probs": torch.tensor([[-1.0, -100.0, -3.0]])}, data)
    assert loss.item() == 2.0


@pytest.mark.parametrize("kind", ["k1", "abs", "k2", "k3", "k1+", "abs+", "k2+", "k3+"])
@pytest.mark.parametrize("name", ["log_probs", "entropy", "ref_log_prob", "old_log_probs", "advantages"])
def test_garbage_outside_the_mask_reaches_neither_loss_nor_gradient(kind: str, name: str) -> None:
    data, clean = batch(), batch()
    outside = data.batch["response_mask"] == 0
    out, clean_out = output(data), output(clean)
    config = ACTOR | {"kl_loss_type": kind}
    expected, _ = ppo_loss(config, clean_out, clean)
    if name in out:
        out[name] = out[name].detach().masked_fill(outside, float("nan")).requires_grad_(out[name].requires_grad)
    else:
        data.batch[name] = data.batch[name].masked_fill(outside, float("nan"))
    loss, metrics = ppo_loss(config, out, data)
    torch.testing.assert_close(loss, expected)
    assert all(np.isfinite(metric.aggregate()) for metric in metrics.values())
    loss.backward()
    expected.backward()
    torch.testing.assert_close(out["log_probs"].grad, clean_out["log_probs"].grad)
