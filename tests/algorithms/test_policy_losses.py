# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policy losses: limits that theory fixes, and what must not change a result."""

import dataclasses
import types

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from verl.algorithms.policy_losses import POLICY_LOSS_REGISTRY, get_policy_loss_fn, register_policy_loss
from verl.base_config import BaseConfig
from verl.errors import ConfigError

NAMES = sorted(POLICY_LOSS_REGISTRY)
# These choose tokens by rank or at random within the micro-batch, so a split changes what they choose.
DEPENDS_ON_SPLIT = {"clip_cov", "kl_cov"}
CONFIG = {
    "clip_ratio": 0.2,
    "clip_ratio_c": 3.0,
    "policy_loss": {"rollout_correction": {"rollout_is": None, "loss_type": "ppo_clip"}},
}


def batch(seed: int, rows: int = 6, width: int = 5) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    old = -torch.rand(rows, width, generator=g, dtype=torch.float64) * 2 - 0.01
    new = (old + 0.4 * torch.randn(rows, width, generator=g, dtype=torch.float64)).clamp(max=-1e-3)
    mask = (torch.rand(rows, width, generator=g) < 0.7).double()
    mask[:, 0] = 1
    mask[-1] = 0
    advantages = torch.randn(rows, width, generator=g, dtype=torch.float64)
    return {"old_log_prob": old, "log_prob": new, "advantages": advantages, "response_mask": mask}


def loss_of(name: str, b: dict, mode: str = "token-mean", **config) -> tuple[torch.Tensor, dict]:
    torch.manual_seed(0)
    return get_policy_loss_fn(name)(**b, loss_agg_mode=mode, config=CONFIG | config)


def test_the_eleven_names_are_there() -> None:
    expected = "bypass_mode cispo clip_cov dppo_kl dppo_tv geo_mean gpg gspo kl_cov sapo vanilla"
    assert set(expected.split()) <= set(NAMES)
    with pytest.raises(ConfigError, match="did you mean 'gspo'"):
        get_policy_loss_fn("gsop")


def test_a_loss_of_ones_own_gets_the_same_named_inputs() -> None:
    @register_policy_loss("test_own_loss")
    def own(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, rollout_is_weights):
        return log_prob.sum(), {"seen": loss_agg_mode}

    found = get_policy_loss_fn("test_own_loss")(
        **batch(0), loss_agg_mode="token-mean", config={}, rollout_is_weights=None
    )
    assert found[1] == {"seen": "token-mean"}


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("cispo", "gpg", "sapo")])
def test_at_ratio_one_the_loss_is_minus_the_mean_advantage(name: str) -> None:
    b = batch(1)
    b["log_prob"] = b["old_log_prob"].clone()
    # A response's advantage is one number for the losses that act on responses.
    b["advantages"] = b["advantages"][:, :1].expand_as(b["advantages"])
    by_sequence = name in ("gspo", "geo_mean")
    mask, counted = b["response_mask"].bool(), b["response_mask"].any(-1)
    expected = -b["advantages"][counted][:, 0].mean() if by_sequence else -b["advantages"][mask].mean()
    torch.testing.assert_close(loss_of(name, b)[0], expected)


@pytest.mark.parametrize("name", NAMES)
def test_at_ratio_one_the_gradient_is_the_policy_gradient(name: str) -> None:
    b = batch(1)
    b["log_prob"] = b["old_log_prob"].clone().requires_grad_()
    b["advantages"] = b["advantages"][:, :1].expand_as(b["advantages"])
    by_sequence = name in ("gspo", "geo_mean", "sapo")
    off = {"clip_cov_lb": 1e9, "kl_cov_ratio": 0.0, "ppo_kl_coef": 0.0}
    loss, _ = loss_of(name, b, policy_loss=CONFIG["policy_loss"] | off)
    loss.backward()
    mask = b["response_mask"]
    share = mask / mask.sum(-1, keepdim=True).clamp(min=1) / 5 if by_sequence else mask / mask.sum()
    torch.testing.assert_close(b["log_prob"].grad, -b["advantages"] * share)


@pytest.mark.parametrize("name", NAMES)
def test_what_lies_outside_the_mask_changes_neither_value_nor_gradient(name: str) -> None:
    clean = batch(2)
    dirty = {key: tensor.clone() for key, tensor in clean.items()}
    outside = clean["response_mask"] == 0
    for key, garbage in (("old_log_prob", float("nan")), ("log_prob", float("inf")), ("advantages", float("nan"))):
        dirty[key][outside] = garbage
    gradients = []
    for b in (clean, dirty):
        b["log_prob"].requires_grad_()
        loss, _ = loss_of(name, b)
        loss.backward()
        gradients.append((loss.detach(), b["log_prob"].grad))
    torch.testing.assert_close(gradients[0][0], gradients[1][0], rtol=0, atol=0)
    assert torch.equal(gradients[0][1], gradients[1][1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shift", [-50.0, 50.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_huge_log_ratio_stays_finite(name: str, shift: float, dtype: torch.dtype) -> None:
    old = torch.full((2, 3), min(-0.5, -0.5 - shift), dtype=dtype)
    b = {"old_log_prob": old, "log_prob": (old + shift).requires_grad_(), "response_mask": torch.ones(2, 3)}
    b["advantages"] = torch.tensor([[1.0, 2.0, 0.5], [-1.0, -2.0, 0.5]], dtype=dtype)
    loss, metrics = loss_of(name, b)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(b["log_prob"].grad).all()
    assert all(abs(float(value)) < float("inf") for value in metrics.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_all_masked_batch_gives_zero_with_a_gradient(name: str) -> None:
    b = batch(3)
    b["response_mask"][:] = 0
    b["log_prob"].requires_grad_()
    loss, _ = loss_of(name, b)
    loss.backward()
    assert loss.item() == 0.0 and not b["log_prob"].grad.any()


@pytest.mark.parametrize(
    "mode", ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"]
)
@pytest.mark.parametrize("name", [n for n in NAMES if n not in DEPENDS_ON_SPLIT])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.integers(1, 5), ranks=st.sampled_from([1, 2]))
def test_micro_batches_and_ranks_add_up_to_the_whole(name: str, mode: str, seed: int, cut: int, ranks: int) -> None:
    b = batch(seed)
    mask = b["response_mask"]
    counts = {"batch_num_tokens": int(mask.sum()), "global_batch_size": int((mask.sum(-1) > 0).sum())}
    whole, _ = loss_of(name, b, mode)
    parts = [
        loss_of(
            name, {key: tensor[rows] for key, tensor in b.items()}, mode, global_batch_info=counts | {"dp_size": ranks}
        )[0]
        for rows in (slice(0, cut), slice(cut, None))
    ]
    # On one rank both parts are micro-batches; on two, the all-reduce takes the mean of the ranks.
    torch.testing.assert_close(sum(parts) / ranks, whole)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_order_and_padding_do_not_matter(name: str, seed: int) -> None:
    b = batch(seed)
    # Padding is part of what the two modes that divide by the width, or draw at random, look at.
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    changed = {key: torch.nn.functional.pad(tensor[order], (0, 3)) for key, tensor in b.items()}
    off = CONFIG["policy_loss"] | {"clip_cov_lb": -1e9, "clip_cov_ub": 1e9, "clip_cov_ratio": 1.0, "kl_cov_ratio": 1.0}
    whole, metrics = loss_of(name, b, "seq-mean-token-mean", policy_loss=off)
    other, other_metrics = loss_of(name, changed, "seq-mean-token-mean", policy_loss=off)
    torch.testing.assert_close(whole, other)
    assert {key: pytest.approx(value, abs=1e-6) for key, value in metrics.items()} == other_metrics


def test_clip_higher_lets_likely_gains_grow_further() -> None:
    b = {"old_log_prob": torch.zeros(1, 1), "log_prob": torch.tensor([[0.25]]), "advantages": torch.ones(1, 1)}
    b["response_mask"] = torch.ones(1, 1)
    strict, _ = loss_of("vanilla", b)
    higher, metrics = loss_of("vanilla", b, clip_ratio_low=0.2, clip_ratio_high=0.28)
    assert strict.item() == pytest.approx(-1.2) and higher.item() == pytest.approx(-1.28)
    assert metrics["actor/pg_clipfrac"] == 1.0


def test_dual_clip_bounds_the_loss_of_a_bad_token_that_became_likely() -> None:
    b = {
        "old_log_prob": torch.full((1, 1), -5.0),
        "log_prob": torch.full((1, 1), -0.1),
        "advantages": -torch.ones(1, 1),
    }
    b["response_mask"] = torch.ones(1, 1)
    loss, metrics = loss_of("vanilla", b)
    assert loss.item() == pytest.approx(3.0) and metrics["actor/pg_clipfrac_lower"] == 1.0


@pytest.mark.parametrize("kind", ["dataclass", "omegaconf", "dict", "namespace"])
def test_a_configuration_of_any_kind_is_read(kind: str) -> None:
    plain = {"clip_ratio": 0.1, "clip_ratio_low": None, "policy_loss": {"ppo_kl_coef": 5.0, "kl_cov_ratio": 1.0}}
    if kind == "dataclass":
        inner = dataclasses.make_dataclass("Inner", ["ppo_kl_coef", "kl_cov_ratio"], bases=(BaseConfig,), frozen=True)
        outer = dataclasses.make_dataclass(
            "Outer", ["clip_ratio", "clip_ratio_low", "policy_loss"], bases=(BaseConfig,), frozen=True
        )
        config = outer(0.1, None, inner(5.0, 1.0))
    elif kind == "namespace":
        config = types.SimpleNamespace(
            clip_ratio=0.1, clip_ratio_low=None, policy_loss=types.SimpleNamespace(ppo_kl_coef=5.0, kl_cov_ratio=1.0)
        )
    else:
        config = OmegaConf.create(plain) if kind == "omegaconf" else plain
        if kind == "omegaconf":
            OmegaConf.set_struct(config, True)
    b = batch(4)
    for name in ("vanilla", "kl_cov"):
        found = get_policy_loss_fn(name)(**b, config=config)[0]
        torch.testing.assert_close(found, get_policy_loss_fn(name)(**b, config=plain)[0])
        assert found != get_policy_loss_fn(name)(**b, config={})[0]
