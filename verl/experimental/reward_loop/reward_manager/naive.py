# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The score is what the reward function says."""

from typing import Any

from verl.experimental.reward_loop.reward_manager.base import SampleRewardManager
from verl.experimental.reward_loop.reward_manager.registry import register
from verl.experimental.reward_loop.sample import RewardSample

__all__ = ["NaiveRewardManager"]


# In the loop each call already has a process and a deadline of its own, which is all that prime is about; batch
# differs only in how its function is called (see `score_pool_of`).
@register("batch")
@register("prime")
@register("naive")
class NaiveRewardManager(SampleRewardManager):
    async def run_sample(self, sample: RewardSample) -> dict[str, Any]:
        score, extras = await self.score(sample)
        return {"reward_score": score, "reward_extra_info": extras}
