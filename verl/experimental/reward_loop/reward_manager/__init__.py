# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reward managers; importing this package registers the built-in ones."""

from verl.experimental.reward_loop.reward_manager.dapo import DAPORewardManager
from verl.experimental.reward_loop.reward_manager.gdpo import GDPORewardManager
from verl.experimental.reward_loop.reward_manager.limited import RateLimitedRewardManager
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.experimental.reward_loop.reward_manager.registry import get_reward_manager_cls, register
from verl.experimental.reward_loop.reward_manager.remote import RemoteRewardManager

__all__ = [
    "DAPORewardManager",
    "GDPORewardManager",
    "NaiveRewardManager",
    "RateLimitedRewardManager",
    "RemoteRewardManager",
    "get_reward_manager_cls",
    "register",
]
