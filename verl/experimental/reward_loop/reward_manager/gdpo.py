# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Several rewards per trajectory, kept apart for the GDPO advantage."""

from typing import Any

from verl.errors import RewardError
from verl.experimental.reward_loop.outcome import to_number
from verl.experimental.reward_loop.reward_manager.base import SampleRewardManager
from verl.experimental.reward_loop.reward_manager.registry import register
from verl.experimental.reward_loop.sample import RewardSample

__all__ = ["GDPORewardManager"]


@register("gdpo")
class GDPORewardManager(SampleRewardManager):
    """The reward function returns a dict with `score` and every key of `algorithm.gdpo_reward_keys`."""

    async def run_sample(self, sample: RewardSample) -> dict[str, Any]:
        score, extras = await self.score(sample)
        keys = list(self.config.algorithm.get("gdpo_reward_keys", None) or [])
        missing = [key for key in keys if key not in extras]
        if missing:
            raise RewardError(
                "the reward function left out rewards that GDPO weighs",
                where="algorithm.gdpo_reward_keys",
                got=sorted(extras),
                expected=f"also {missing}",
            )
        return {"reward_score": score, "reward_extra_info": extras | {key: to_number(extras[key]) for key in keys}}
