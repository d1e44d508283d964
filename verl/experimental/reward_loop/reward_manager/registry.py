# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reward managers by name (`reward.reward_manager.name`)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from verl.registry import Registry

if TYPE_CHECKING:
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

__all__ = ["get_reward_manager_cls", "register"]

REWARD_MANAGERS: Registry[type["RewardManagerBase"]] = Registry("reward manager", key="reward.reward_manager.name")


def register(name: str) -> Callable[[type["RewardManagerBase"]], type["RewardManagerBase"]]:
    """Class decorator: `reward.reward_manager.name=<name>` selects the class."""
    return REWARD_MANAGERS.register(name)


def get_reward_manager_cls(name: str) -> type["RewardManagerBase"]:
    return REWARD_MANAGERS.get(name)
