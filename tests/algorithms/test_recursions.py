# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The recursions along tokens: both forms of each are what their definition says, counted in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.algorithms import tensor_math
from verl.algorithms.tensor_math import discounted_suffix_sum, next_valid

FORMS = {
    "by token": {},
    "by doubling": {"_scan_by_token": tensor_math._scan_by_doubling, "_next_by_token": tensor_math._next_by_doubling},
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The form that a CPU takes, or that of a device in its place."""
    for name, function in FORMS[request.param].items():
        monkeypatch.setattr(tensor_math, name, function)
    return request.param


def by_definition(values: np.ndarray, mask: np.ndarray, discount: float) -> np.ndarray:
    out = np.zeros(values.shape)
    for row in range(len(values)):
        running = 0.0
        for t in reversed(range(values.shape[1])):
            if mask[row, t]:
                running = values[row, t] + discount * running
                out[row, t] = running
    return out


def next_by_definition(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    out = np.zeros_like(values)
    for row in range(len(values)):
        following = 0.0
        for t in reversed(range(values.shape[1])):
            out[row, t] = following
            following = values[row, t] if mask[row, t] else following
    return out


@st.composite
def batches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Ragged rows with gaps, garbage outside the mask, widths about the powers of two; no row and no token too."""
    rows, width = draw(st.integers(0, 5)), draw(st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 200]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    mask = rng.random((rows, width)) < draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))
    garbage = rng.choice([np.nan, np.inf, -np.inf], size=mask.shape)
    return np.where(mask, rng.normal(size=mask.shape) * 10.0 ** rng.integers(-3, 4), garbage), mask


# The fixture only chooses a function, so that one choice may serve all examples.
@settings(max_examples=150, deadline=None)
@given(batch=batches(), discount=st.sampled_from([0.0, 0.5, 0.95, 0.999, 1.0]), dtype=st.sampled_from(["f4", "f8"]))
def check_suffix_sum(batch: tuple[np.ndarray, np.ndarray], discount: float, dtype: str) -> None:
    values, mask = batch[0].astype(dtype), batch[1]
    found = discounted_suffix_sum(torch.from_numpy(values), torch.from_numpy(mask), discount)
    assert found.dtype == torch.from_numpy(values).dtype
    kept = np.where(mask, values, 0.0).astype("f8")
    # A rounding of the product and one of the sum at each token, of all that was added up, whatever cancelled.
    roundings = 2 * values.shape[1] * np.finfo(dtype).eps
    bound = by_definition(np.abs(kept), mask, discount) * roundings + np.finfo(dtype).tiny
    assert (np.abs(found.double().numpy() - by_definition(kept, mask, discount)) <= bound).all()


@settings(max_examples=150, deadline=None)
@given(batch=batches(), dtype=st.sampled_from(["f4", "f8"]))
def check_next_valid(batch: tuple[np.ndarray, np.ndarray], dtype: str) -> None:
    values, mask = batch[0].astype(dtype), batch[1]
    found = next_valid(torch.from_numpy(values), torch.from_numpy(mask)).numpy()
    np.testing.assert_array_equal(found, next_by_definition(values, mask))


def test_the_suffix_sum_is_its_definition_to_rounding(form: str) -> None:
    check_suffix_sum()


def test_the_next_valid_value_is_its_definition_exactly(form: str) -> None:
    check_next_valid()


def test_arguments_stay_as_they_are(form: str) -> None:
    values, mask = torch.arange(12.0).view(3, 4), torch.ones(3, 4, dtype=torch.long)
    for function in (lambda v, m: discounted_suffix_sum(v, m, 0.5), next_valid):
        for give in (lambda tensor: tensor, lambda tensor: tensor.t().contiguous().t()):
            given, kept = give(values.clone()), give(mask.clone())
            function(given, kept)
            assert torch.equal(given, values) and torch.equal(kept, mask)


def test_a_long_return_is_rounded_no_worse_by_doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    values, mask = torch.rand(4, 4096, generator=torch.Generator().manual_seed(0)), torch.ones(4, 4096)
    exact = values.double().flip(-1).cumsum(-1).flip(-1)
    errors = []
    for name in FORMS:
        for attribute, function in FORMS[name].items():
            monkeypatch.setattr(tensor_math, attribute, function)
        errors.append(((discounted_suffix_sum(values, mask, 1.0) - exact).abs() / exact).max().item())
    assert errors[1] <= errors[0] and errors[1] < 1e-6
