# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reward functions that ask a service with quotas: requests and tokens per minute, and calls at once."""

import asyncio
import time
from typing import Any, ClassVar

from verl.errors import ConfigError
from verl.experimental.reward_loop.reward_manager.base import SampleRewardManager
from verl.experimental.reward_loop.reward_manager.registry import register
from verl.experimental.reward_loop.sample import RewardSample
from verl.waits import bounded

__all__ = ["AsyncTokenBucket", "RateLimitedRewardManager"]


class AsyncTokenBucket:
    """Lets `rate_limit` tokens a second through, in bursts of at most `max_tokens`; callers are served in order."""

    def __init__(self, rate_limit: float, max_tokens: float | None = None) -> None:
        if rate_limit <= 0:
            raise ConfigError("a rate limit must be positive", got=rate_limit)
        self.rate_limit = float(rate_limit)
        self.max_tokens = float(rate_limit if max_tokens is None else max_tokens)
        self._tokens = self.max_tokens
        self._updated_s = time.monotonic()
        self._turn = asyncio.Lock()

    async def acquire(self, num_tokens: float = 1.0) -> None:
        """Wait until `num_tokens` are there and take them; more than a burst holds are paid off over time."""
        async with self._turn:
            self._refill()
            # The bucket may go below zero: whoever comes next waits for what this caller took ahead.
            wanted = min(num_tokens, self.max_tokens)
            while self._tokens < wanted:
                await asyncio.sleep((wanted - self._tokens) / self.rate_limit)
                self._refill()
            self._tokens -= num_tokens

    def _refill(self) -> None:
        now_s = time.monotonic()
        self._tokens = min(self.max_tokens, self._tokens + (now_s - self._updated_s) * self.rate_limit)
        self._updated_s = now_s


@register("rate_limited")
class RateLimitedRewardManager(SampleRewardManager):
    """As `naive`, within `reward.{max_concurrent, max_rpm, max_tpm, estimated_tokens_per_request, timeout}`.

    The limits hold per reward worker: set them to the service's quota divided by `reward.num_workers`.
    """

    _semaphore: ClassVar[asyncio.Semaphore]
    _rpm_limiter: ClassVar[AsyncTokenBucket | None] = None
    _tpm_limiter: ClassVar[AsyncTokenBucket | None] = None
    _max_concurrent: ClassVar[int | None] = None
    _max_rpm: ClassVar[float | None] = None
    _max_tpm: ClassVar[float | None] = None
    _estimated_tokens_per_request: ClassVar[float] = 2000.0
    _timeout_s: ClassVar[float] = 300.0

    @classmethod
    def init_class(cls, config: Any, tokenizer: Any) -> None:
        if cls._class_initialized:
            return
        reward = config.reward
        cls._max_concurrent = reward.get("max_concurrent", None)
        cls._max_rpm = reward.get("max_rpm", None)
        cls._max_tpm = reward.get("max_tpm", None)
        cls._estimated_tokens_per_request = float(reward.get("estimated_tokens_per_request", None) or 2000)
        cls._timeout_s = float(reward.get("timeout", None) or 300.0)
        cls._semaphore = asyncio.Semaphore(cls._max_concurrent or 1 << 30)
        cls._rpm_limiter = AsyncTokenBucket(cls._max_rpm / 60, cls._max_rpm) if cls._max_rpm else None
        cls._tpm_limiter = AsyncTokenBucket(cls._max_tpm / 60, cls._max_tpm) if cls._max_tpm else None
        super().init_class(config, tokenizer)

    async def run_sample(self, sample: RewardSample) -> dict[str, Any]:
        if self._rpm_limiter is not None:
            await self._rpm_limiter.acquire(1.0)
        if self._tpm_limiter is not None:
            await self._tpm_limiter.acquire(self._estimated_tokens_per_request)
        async with self._semaphore:
            # From here on it is the call's own time; the queue before it does not count against the service.
            score, extras = await bounded(
                self.score(sample), what="a score", whom="the reward function", deadline_s=self._timeout_s
            )
        return {"reward_score": score, "reward_extra_info": extras}
