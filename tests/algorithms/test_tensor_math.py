# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Masked statistics: what lies outside the mask is not there, whatever it is."""

from collections.abc import Callable

import pytest
import torch

from verl.algorithms.tensor_math import masked_mean, masked_sum, masked_var, masked_whiten

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("function", [masked_mean, masked_sum])
@pytest.mark.parametrize(("mask", "value", "gradient"), [([1, 0, 0], 1.0, [1, 0, 0]), ([0, 0, 0], 0.0, [0, 0, 0])])
def test_garbage_outside_the_mask_reaches_neither_value_nor_gradient(
    function: Callable[..., torch.Tensor], mask: list[int], value: float, gradient: list[int]
) -> None:
    values = torch.tensor([1.0, NAN, INF], requires_grad=True)
    found = function(values, torch.tensor(mask))
    found.backward()
    assert found.item() == value and values.grad.tolist() == gradient


@pytest.mark.parametrize("function", [masked_var, masked_whiten])
@pytest.mark.parametrize("mask", [[1, 0, 0], [0, 0, 0]])
def test_one_value_or_none_has_no_spread_and_no_nan(function: Callable[..., torch.Tensor], mask: list[int]) -> None:
    values = torch.tensor([3.0, NAN, INF], requires_grad=True)
    found = function(values, torch.tensor(mask))
    found.sum().backward()
    assert torch.isfinite(found).all() and torch.isfinite(values.grad).all()
    if function is masked_whiten:
        # One value stays as it is.
        assert found.tolist() == [3.0 * mask[0], 0.0, 0.0]
