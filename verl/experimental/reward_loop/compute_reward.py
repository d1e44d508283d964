# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Scores of a whole batch in one call, for recipes that hold a `reward_fn`; training scores as trajectories end."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import ray

from verl.errors import ConfigError
from verl.experimental.reward_loop.batch import scores_to_data
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.protocol import DataProto
from verl.trainer.ppo.reward import extract_reward, load_reward_manager

__all__ = ["compute_reward", "compute_reward_async"]


def compute_reward(data: DataProto, reward_fn: Callable[..., Any] | RewardManagerBase) -> tuple[Any, dict[str, Any]]:
    """(scores [B,T], extras by key) of a batch.

    `reward_fn`: what `load_reward_manager` gives, whose rows are scored side by side; a whole-batch manager; or a
    function of the batch, whose result without a dict means that there are no extras.
    """
    if isinstance(reward_fn, RewardManagerBase):
        return asyncio.run(_row_by_row(data, reward_fn))
    accepts_dict = "return_dict" in inspect.signature(reward_fn).parameters
    result = reward_fn(data, return_dict=True) if accepts_dict else reward_fn(data)
    if not isinstance(result, dict):
        return result, {}
    return result["reward_tensor"], result.get("reward_extra_info", None) or {}


async def _row_by_row(data: DataProto, manager: RewardManagerBase) -> tuple[Any, dict[str, Any]]:
    answers = await asyncio.gather(*(manager.run_single(data[row : row + 1]) for row in range(len(data))))
    return extract_reward(scores_to_data(data, [{"reward_error": None, **answer} for answer in answers]))


@ray.remote(num_cpus=0)
def compute_reward_async(
    data: DataProto, config: Any = None, tokenizer: Any = None, reward_fn: Callable[..., Any] | None = None
) -> tuple[Any, dict[str, Any]]:
    """`compute_reward` in a process of its own: `compute_reward_async.remote(data, config, tokenizer)`.

    The manager of `config` is made there, unless `reward_fn` is given.
    """
    if reward_fn is None and (config is None or tokenizer is None):
        raise ConfigError("nothing says how to score", remedy="give config and tokenizer, or reward_fn")
    return compute_reward(data, reward_fn if reward_fn is not None else load_reward_manager(config, tokenizer))
