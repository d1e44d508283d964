# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Compositions shared by the tests of this folder."""

from collections.abc import Callable, Sequence

import pytest
from omegaconf import DictConfig

from verl.config.compose import CommandLine, compose_config

FULLY_ASYNC = "verl.experimental.fully_async_policy.config"

# The least that a fully asynchronous run must be told.
MINIMAL = (
    "data.train_batch_size=0",
    "actor_rollout_ref.hybrid_engine=False",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "algorithm.adv_estimator=grpo",
    "rollout.total_rollout_steps=5000",
)

Compose = Callable[..., DictConfig]


@pytest.fixture(scope="session")
def compose() -> Compose:
    """Compose a file of ours: compose("ppo_trainer", module, overrides)."""

    def composed(name: str, module: str = FULLY_ASYNC, overrides: Sequence[str] = ()) -> DictConfig:
        return compose_config(CommandLine(tuple(overrides), name, module))

    return composed


@pytest.fixture(scope="session")
def minimal(compose: Compose) -> DictConfig:
    """A composed fully asynchronous run that passes validation; tests copy it before changing it."""
    return compose("fully_async_ppo_trainer", FULLY_ASYNC, MINIMAL)
