# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Roles, and which of them a configuration asks for."""

from enum import Enum
from typing import Any

from verl.config.roles import need_critic, need_reference_policy, need_reward_model, need_teacher_policy
from verl.errors import ConfigError

__all__ = [
    "Role",
    "WorkerType",
    "need_critic",
    "need_reference_policy",
    "need_reward_model",
    "need_teacher_policy",
]

# A worker class; the controller's Worker lives on a higher floor.
WorkerType = type[Any]


class Role(Enum):
    """What a group of workers does."""

    Actor = 0
    Rollout = 1
    ActorRollout = 2
    Critic = 3
    RefPolicy = 4
    RewardModel = 5
    ActorRolloutRef = 6
    Env = 7
    TeacherModel = 8

    def __str__(self) -> str:
        return _NAMES[self]

    @classmethod
    def from_string(cls, name: str) -> "Role":
        """The role of a name such as actor_rollout."""
        for role, text in _NAMES.items():
            if text == name:
                return role
        raise ConfigError("unknown role", got=name, expected="one of " + ", ".join(_NAMES.values()))


_NAMES = {
    Role.Actor: "actor",
    Role.Rollout: "rollout",
    Role.ActorRollout: "actor_rollout",
    Role.Critic: "critic",
    Role.RefPolicy: "ref",
    Role.RewardModel: "rm",
    Role.ActorRolloutRef: "actor_rollout_ref",
    Role.Env: "env",
    Role.TeacherModel: "teacher",
}
