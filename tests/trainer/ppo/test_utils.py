# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Roles, and which a configuration asks for."""

from dataclasses import replace

import pytest
from omegaconf import OmegaConf

from verl.config import RunConfig
from verl.errors import ConfigError
from verl.trainer.ppo.utils import Role, need_critic, need_reference_policy, need_reward_model, need_teacher_policy


def test_every_role_has_a_name_and_is_found_by_it() -> None:
    assert [str(role) for role in Role] == [
        "actor",
        "rollout",
        "actor_rollout",
        "critic",
        "ref",
        "rm",
        "actor_rollout_ref",
        "env",
        "teacher",
    ]
    assert all(Role.from_string(str(role)) is role for role in Role)
    with pytest.raises(ConfigError, match="actor_rollout_ref"):
        Role.from_string("judge")


def test_a_critic_exists_where_the_estimator_needs_values_or_the_key_says_so() -> None:
    config = RunConfig()
    assert need_critic(config)
    grpo = replace(config, algorithm=replace(config.algorithm, adv_estimator="grpo"))
    assert not need_critic(grpo)
    assert need_critic(replace(grpo, critic=replace(config.critic, enable=True)))
    assert not need_critic(replace(config, critic=replace(config.critic, enable=False)))


def test_a_reference_exists_where_a_kl_needs_its_anchor() -> None:
    config = RunConfig()
    assert not need_reference_policy(config)
    assert need_reference_policy(replace(config, algorithm=replace(config.algorithm, use_kl_in_reward=True)))
    policy = config.actor_rollout_ref
    with_loss = replace(policy, actor=replace(policy.actor, use_kl_loss=True))
    assert need_reference_policy(replace(config, actor_rollout_ref=with_loss))


def test_a_composed_configuration_answers_as_a_typed_one() -> None:
    composed = OmegaConf.create(
        {
            "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False},
            "critic": {"enable": None},
            "actor_rollout_ref": {"actor": {"use_kl_loss": True}},
            "reward": {"reward_model": {"enable": True}},
            "distillation": {"enabled": False},
        }
    )
    asked = (need_critic, need_reference_policy, need_reward_model, need_teacher_policy)
    assert [need(composed) for need in asked] == [False, True, True, False]
    assert [need(RunConfig()) for need in asked[2:]] == [False, False]
