# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The reward function's score, less a penalty that grows over the last tokens of the budget (DAPO)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verl.errors import ConfigError
from verl.experimental.reward_loop.reward_manager.base import SampleRewardManager
from verl.experimental.reward_loop.reward_manager.registry import register
from verl.experimental.reward_loop.sample import RewardSample

__all__ = ["DAPORewardManager", "OverlongPenalty", "overlong_penalty"]


def overlong_penalty(response_length: int, max_resp_len: int, buffer_len: int, penalty_factor: float) -> float:
    """Soft overlong punishment, arXiv:2503.14476 eq. 13, scaled.

    min(-(length - (max_resp_len - buffer_len)) / buffer_len * penalty_factor, 0)
    """
    exceeded = response_length - (max_resp_len - buffer_len)
    return min(-exceeded / buffer_len * penalty_factor, 0.0)


@dataclass(frozen=True)
class OverlongPenalty:
    """The penalty with its settings: the last `buffer_len` of `max_resp_len` tokens cost up to `penalty_factor`."""

    max_resp_len: int
    buffer_len: int
    penalty_factor: float
    log: bool

    @classmethod
    def of(cls, max_resp_len: int | None, buffer: Any) -> "OverlongPenalty | None":
        """From `reward.reward_kwargs.{max_resp_len, overlong_buffer_cfg}`; None where it is switched off.

        Lengths with which the penalty has no meaning are refused.
        """
        buffer, where = buffer or {}, "reward.reward_kwargs"
        if not buffer.get("enable", False):
            return None
        buffer_len = buffer.get("len", None)
        if not max_resp_len:
            raise ConfigError(
                "the overlong penalty needs a length",
                where=f"{where}.max_resp_len",
                got=max_resp_len,
                expected="a positive number of tokens",
            )
        if not buffer_len or not 0 < buffer_len <= max_resp_len:
            raise ConfigError(
                "the overlong penalty needs a buffer",
                where=f"{where}.overlong_buffer_cfg.len",
                got=buffer_len,
                expected=f"between 1 and max_resp_len={max_resp_len}",
            )
        factor = float(buffer.get("penalty_factor", 1.0) or 0.0)
        return cls(max_resp_len, buffer_len, factor, bool(buffer.get("log", False)))

    def on(self, score: float, extras: dict[str, Any], response_length: int) -> tuple[float, dict[str, Any]]:
        """(score, extras) less the penalty of an answer of so many tokens."""
        penalty = overlong_penalty(response_length, self.max_resp_len, self.buffer_len, self.penalty_factor)
        logged = {"overlong_reward": penalty, "overlong": penalty < 0} if self.log else {}
        return score + penalty, extras | logged


@register("dapo")
class DAPORewardManager(SampleRewardManager):
    """Reads `reward.reward_kwargs.{max_resp_len, overlong_buffer_cfg.{enable,len,penalty_factor,log}}`."""

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Callable[..., Any],
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any | None = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score, reward_router_address, reward_model_tokenizer)
        options = config.reward.get("reward_kwargs", None) or {}
        self.overlong = OverlongPenalty.of(options.get("max_resp_len", None), options.get("overlong_buffer_cfg", None))

    async def run_sample(self, sample: RewardSample) -> dict[str, Any]:
        score, extras = await self.score(sample)
        if self.overlong is not None:
            score, extras = self.overlong.on(score, extras, sample.response_length)
        return {"reward_score": score, "reward_extra_info": extras}
