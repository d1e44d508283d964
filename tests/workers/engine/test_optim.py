# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Optimizers by name, schedules, clipped steps."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from verl.errors import ConfigError, UnsupportedError
from verl.workers.engine.optim import build_lr_scheduler, build_optimizer, clipped_step, lr_factor


def test_adamw_gets_rate_decay_and_betas():
    optimizer = build_optimizer([nn.Parameter(torch.ones(2))], {"lr": 0.1, "weight_decay": 0.2, "betas": [0.8, 0.9]})
    assert type(optimizer) is torch.optim.AdamW
    group = optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.1, 0.2, (0.8, 0.9))


def test_another_class_gets_only_what_it_takes_and_overrides_win():
    config = {"lr": 0.1, "optimizer": "SGD", "betas": (0.9, 0.99), "override_optimizer_config": {"momentum": 0.5}}
    optimizer = build_optimizer([nn.Parameter(torch.ones(2))], config)
    assert type(optimizer) is torch.optim.SGD
    assert optimizer.param_groups[0]["momentum"] == 0.5


def test_frozen_parameters_are_left_out():
    frozen, trained = nn.Parameter(torch.ones(1), requires_grad=False), nn.Parameter(torch.ones(1))
    assert build_optimizer([frozen, trained], {"lr": 0.1}).param_groups[0]["params"] == [trained]


def test_an_unknown_optimizer_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"optim\.optimizer.*'Adamw'.*AdamW"):
        build_optimizer([nn.Parameter(torch.ones(1))], {"lr": 0.1, "optimizer": "Adamw"})


def test_a_missing_optimizer_package_names_the_key():
    with pytest.raises(UnsupportedError, match="optimizer_impl"):
        build_optimizer([nn.Parameter(torch.ones(1))], {"lr": 0.1, "optimizer_impl": "no_such_package.optim"})


def test_constant_schedule_after_linear_warm_up():
    factor = lr_factor({"lr_warmup_steps": 4})
    assert [factor(step) for step in range(6)] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]


def test_counting_from_one_makes_the_first_warm_up_step_learn():
    factor = lr_factor({"lr_warmup_steps": 4, "zero_indexed_step": False})
    assert [factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_the_warm_up_ratio_counts_where_steps_are_not_given():
    factor = lr_factor({"lr_warmup_steps": -1, "lr_warmup_steps_ratio": 0.1, "total_training_steps": 50})
    assert [factor(step) for step in (0, 4, 5)] == [0.0, 0.8, 1.0]


def test_cosine_falls_from_one_to_the_floor_as_the_formula_says():
    factor = lr_factor(
        {"lr_scheduler_type": "cosine", "total_training_steps": 20, "lr_warmup_steps": 4, "min_lr_ratio": 0.1}
    )
    progress = (np.arange(4, 21, dtype=np.float64) - 4) / 16
    expected = 0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi * progress))
    np.testing.assert_allclose([factor(step) for step in range(4, 21)], expected, rtol=1e-12)
    assert factor(35) == pytest.approx(0.1)


def test_a_cosine_without_a_length_is_refused():
    with pytest.raises(ConfigError, match="total_training_steps"):
        lr_factor({"lr_scheduler_type": "cosine", "total_training_steps": -1})


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ConfigError, match="constant or cosine"):
        lr_factor({"lr_scheduler_type": "linear"})


def one_parameter(grad: list[float]) -> tuple[nn.Parameter, torch.optim.Optimizer]:
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor(grad)
    return parameter, build_optimizer([parameter], {"lr": 1.0, "optimizer": "SGD", "weight_decay": 0.0})


def test_the_gradient_is_clipped_and_its_norm_before_clipping_reported():
    parameter, optimizer = one_parameter([3.0, 4.0])
    norm, stepped = clipped_step(optimizer, [parameter], max_norm=1.0)
    assert (norm, stepped) == (5.0, True)
    torch.testing.assert_close(parameter.data, torch.tensor([-0.6, -0.8]), rtol=1e-5, atol=0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(bad: float):
    parameter, optimizer = one_parameter([1.0, bad])
    norm, stepped = clipped_step(optimizer, [parameter], max_norm=1.0)
    assert not math.isfinite(norm) and not stepped
    assert parameter.tolist() == [0.0, 0.0]


def test_without_a_limit_nothing_is_clipped():
    parameter, optimizer = one_parameter([3.0, 4.0])
    clipped_step(optimizer, [parameter], max_norm=None)
    assert parameter.tolist() == [-3.0, -4.0]


def test_the_scheduler_applies_the_factor_to_the_optimizer():
    _, optimizer = one_parameter([0.0, 0.0])
    scheduler = build_lr_scheduler(optimizer, {"lr_warmup_steps": 2, "lr": 1.0})
    rates = []
    for _ in range(3):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert rates == [0.0, 0.5, 1.0]
