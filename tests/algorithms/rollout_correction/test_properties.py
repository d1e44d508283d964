# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What must not change a correction: the order of trajectories, the amount of padding and what stands in it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.algorithms.rollout_correction.apply import Correction, correct
from verl.algorithms.rollout_correction.spec import parse_correction
from verl.algorithms.rollout_correction.statistics import effective_sample_size, fraction, summarize

ROWS, WIDTH = 6, 5
SPECS = {
    "TIS of tokens": {"rollout_is": "token", "rollout_is_threshold": 1.5},
    "IcePop of sequences, normalised": {
        "rollout_is": "sequence",
        "rollout_is_threshold": "0.5_3.0",
        "rollout_is_batch_normalize": True,
    },
    "rejection by every kind of rule": {
        "rollout_is": "token",
        "rollout_is_batch_normalize": True,
        "rollout_rs": "token_k1,token_k3,seq_sum_k2,seq_mean_k1,seq_max_k2",
        "rollout_rs_threshold": "0.3_4.0,1.0,2.0,0.5_2.0,1.5",
    },
}


def log_probs(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def uniform() -> torch.Tensor:
        return torch.rand(ROWS, WIDTH, generator=generator, dtype=torch.float64)

    mask = (uniform() < 0.7).long()
    mask[0] = 0
    return -2 * uniform(), -2 * uniform(), mask


def run(name: str, old: torch.Tensor, rollout: torch.Tensor, mask: torch.Tensor) -> Correction:
    return correct(old, rollout, mask, parse_correction(**SPECS[name]))


def same_metrics(one: Correction, other: Correction) -> None:
    assert one.metrics == pytest.approx(other.metrics, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_order_of_trajectories_does_not_matter(name: str, seed: int) -> None:
    inputs, order = log_probs(seed), np.random.default_rng(seed).permutation(ROWS)
    straight, shuffled = run(name, *inputs), run(name, *(tensor[order] for tensor in inputs))
    torch.testing.assert_close(straight.weights[order], shuffled.weights)
    assert torch.equal(straight.mask[order], shuffled.mask)
    same_metrics(straight, shuffled)


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), extra=st.integers(1, 4))
def test_padding_and_what_stands_in_it_do_not_matter(name: str, seed: int, extra: int) -> None:
    old, rollout, mask = log_probs(seed)
    narrow = run(name, old, rollout, mask)
    garbage = [torch.where(mask.bool(), tensor, torch.nan) for tensor in (old, rollout)]
    wide = [torch.nn.functional.pad(tensor, (0, extra), value=torch.inf) for tensor in garbage]
    padded = run(name, *wide, torch.nn.functional.pad(mask, (0, extra)))
    torch.testing.assert_close(narrow.weights, padded.weights[:, :WIDTH])
    assert torch.equal(narrow.mask, padded.mask[:, :WIDTH])
    assert not padded.weights[:, WIDTH:].any() and not padded.mask[:, WIDTH:].any()
    same_metrics(narrow, padded)


@pytest.mark.parametrize("name", SPECS)
def test_a_batch_without_a_token_gives_zeros(name: str) -> None:
    old, rollout, mask = log_probs(0)
    found = run(name, old, rollout, torch.zeros_like(mask))
    assert not found.weights.any() and not found.mask.any()
    assert all(np.isfinite(value) for value in found.metrics.values())


def test_weights_of_seventeen_million_tokens_are_summarised() -> None:
    """More than torch.quantile takes, and than one float32 counter counts."""
    weights = torch.ones(17_000_000)
    weights[::4] = 2.0
    mask = torch.ones(1, dtype=torch.bool).expand_as(weights)
    mean, std, largest, smallest = summarize(weights, mask)
    assert (mean, largest, smallest) == (pytest.approx(1.25, rel=1e-6), 2.0, 1.0)
    assert std == pytest.approx(np.sqrt(3 / 16), rel=1e-5)
    assert fraction(weights > 1.5, mask) == pytest.approx(0.25, rel=1e-6)
    assert effective_sample_size(weights, mask) == pytest.approx(1.25**2 / 1.75, rel=1e-5)
