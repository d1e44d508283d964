# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The contract of a reward manager: one trajectory in, one score out."""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from verl.errors import UnsupportedError
from verl.experimental.reward_loop.outcome import split_result
from verl.experimental.reward_loop.sample import RewardSample

__all__ = ["RewardManagerBase", "SampleRewardManager"]


class RewardManagerBase(ABC):
    """Scores a `DataProto` of one row. Managers of users derive from this and define `run_single`.

    `compute_score` is a coroutine function that runs the reward function in a process of its own, with a deadline;
    `config` is the whole configuration.
    """

    _class_initialized: ClassVar[bool] = False

    def __init__(self, config: Any, tokenizer: Any, compute_score: Callable[..., Any]) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.compute_score = compute_score
        self.init_class(config, tokenizer)

    @classmethod
    def init_class(cls, config: Any, tokenizer: Any) -> None:
        """Set up once per process what all objects of the class share."""
        cls._class_initialized = True

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @abstractmethod
    async def run_single(self, data: Any) -> dict[str, Any]:
        """`{"reward_score": float, "reward_extra_info": dict}` of a `DataProto` with one row."""

    def __call__(self, data: Any, return_dict: bool = False) -> Any:
        raise UnsupportedError(
            f"{type(self).__name__} does not score a whole batch in one call",
            remedy="await run_single for each row, or RewardLoopManager.compute_rm_score",
        )


class SampleRewardManager(RewardManagerBase):
    """A manager that needs the texts only; the built-in ones. It never touches a tensor."""

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Callable[..., Any],
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any | None = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        self.data_source_key = config.data.get("reward_fn_key", None) or "data_source"
        self.reward_arguments: dict[str, Any] = {}
        if reward_router_address is not None:
            self.reward_arguments = {
                "reward_router_address": reward_router_address,
                "reward_model_tokenizer": reward_model_tokenizer,
            }

    @abstractmethod
    async def run_sample(self, sample: RewardSample) -> dict[str, Any]:
        """`{"reward_score": float, "reward_extra_info": dict}`."""

    async def run_single(self, data: Any) -> dict[str, Any]:
        return await self.run_sample(RewardSample.from_data(data, self.tokenizer))

    async def score(self, sample: RewardSample) -> tuple[float, dict[str, Any]]:
        """(score, extras) of the reward function."""
        return await call_function(
            self.compute_score, **sample.arguments(self.data_source_key), **self.reward_arguments
        )


async def call_function(function: Callable[..., Any], **arguments: Any) -> tuple[float, dict[str, Any]]:
    """(score, extras) of a reward function of any kind: a coroutine function (the pool's is one) or a plain one."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        result = await function(**arguments)
    else:
        result = await asyncio.to_thread(lambda: function(**arguments))
        if inspect.isawaitable(result):
            result = await result
    return split_result(result)
