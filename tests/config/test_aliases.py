# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Two keys for one truth end as one value; one seed feeds all."""

import logging
from typing import Any

import pytest
from omegaconf import OmegaConf

from verl.config import build_config
from verl.errors import ConfigError

ACTOR = "actor_rollout_ref.actor"


def changed(minimal: Any, *pairs: tuple[str, Any]) -> Any:
    config = OmegaConf.merge(minimal, {})
    for key, value in pairs:
        OmegaConf.update(config, key, value, force_add=True)
    return build_config(config)


def test_the_older_name_of_a_key_reaches_the_newer(minimal: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="verl"):
        actor = changed(minimal, (f"{ACTOR}.grad_clip", 0.5)).actor_rollout_ref.actor
    assert actor.optim.clip_grad == 0.5
    assert f"set {ACTOR}.optim.clip_grad=0.5" in caplog.text


def test_the_newer_name_of_a_key_reaches_the_older_without_a_word(
    minimal: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="verl"):
        actor = changed(minimal, (f"{ACTOR}.optim.clip_grad", 0.5)).actor_rollout_ref.actor
    assert actor.grad_clip == 0.5 and caplog.text == ""


def test_role_and_engine_have_one_sequence_parallel_size(minimal: Any) -> None:
    for key in (f"{ACTOR}.ulysses_sequence_parallel_size", f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size"):
        actor = changed(minimal, (key, 4)).actor_rollout_ref.actor
        assert (actor.ulysses_sequence_parallel_size, actor.fsdp_config.ulysses_sequence_parallel_size) == (4, 4)


def test_the_reference_follows_the_actor(minimal: Any) -> None:
    ref = changed(minimal, (f"{ACTOR}.ulysses_sequence_parallel_size", 2)).actor_rollout_ref.ref
    assert (ref.ulysses_sequence_parallel_size, ref.fsdp_config.ulysses_sequence_parallel_size) == (2, 2)


def test_two_values_for_one_truth_are_an_error_naming_both_keys(minimal: Any) -> None:
    with pytest.raises(ConfigError, match=r"actor\.grad_clip.*got 0\.5, expected 2\.0 as in .*optim\.clip_grad"):
        changed(minimal, (f"{ACTOR}.grad_clip", 0.5), (f"{ACTOR}.optim.clip_grad", 2.0))


def test_the_older_name_of_the_schedule_is_taken(minimal: Any) -> None:
    optim = changed(minimal, (f"{ACTOR}.optim.warmup_style", "cosine")).actor_rollout_ref.actor.optim
    assert optim.lr_scheduler_type == "cosine"


def test_fsdp2_set_on_the_engine_alone_is_the_strategy(minimal: Any) -> None:
    assert changed(minimal, (f"{ACTOR}.fsdp_config.strategy", "fsdp2")).actor_rollout_ref.actor.strategy == "fsdp2"


def test_one_seed_feeds_all_that_nobody_set(minimal: Any) -> None:
    config = changed(minimal, ("trainer.seed", 7), (f"{ACTOR}.data_loader_seed", 3))
    policy = config.actor_rollout_ref
    assert policy.actor.data_loader_seed == 3
    assert [
        config.data.seed,
        policy.actor.fsdp_config.seed,
        policy.ref.fsdp_config.seed,
        policy.rollout.seed,
        config.critic.data_loader_seed,
        config.critic.fsdp.seed,
    ] == [7] * 6


def test_without_the_one_seed_each_key_keeps_its_own(minimal: Any) -> None:
    config = build_config(minimal)
    assert (config.data.seed, config.actor_rollout_ref.actor.data_loader_seed) == (None, 42)
    assert config.actor_rollout_ref.rollout.seed is None
