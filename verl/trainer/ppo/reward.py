# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From the configuration to a reward function and the manager that uses it."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from verl.errors import ConfigError, DataError
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.experimental.reward_loop.score_pool import DEFAULT_PROCESSES, DEFAULT_TIMEOUT_S, ScorePool, function_spec
from verl.utils.import_utils import load_extern_object

__all__ = [
    "extract_reward",
    "get_custom_reward_fn",
    "load_reward_manager",
    "reward_manager_class",
    "score_pool_of",
]


def get_custom_reward_fn(config: Any) -> Callable[..., Any] | None:
    """The function of `reward.custom_reward_function` with `reward_kwargs` filled in, or None where no path is set.

    A coroutine function stays one.
    """
    custom = _custom(config)
    if custom is None:
        return None
    function = load_extern_object(custom["path"], custom["name"])
    if not callable(function):
        raise ConfigError("the reward function cannot be called", where="reward.custom_reward_function", got=function)
    return _with_kwargs(function, custom["kwargs"])


def score_pool_of(config: Any, num_workers: int = 1) -> ScorePool:
    """The processes that run the configured reward function; `num_workers` pools share the sandbox's limits."""
    reward = config.reward
    timeout_s = reward.get("timeout", DEFAULT_TIMEOUT_S)
    custom = _custom(config)
    if custom is not None:
        # The batch manager's functions take and return lists; here they get lists of one.
        batched = reward.reward_manager.get("name", None) == "batch"
        spec = function_spec(path=custom["path"], name=custom["name"], kwargs=custom["kwargs"], batched=batched)
        return ScorePool(spec, timeout_s=timeout_s)
    sandbox = reward.get("sandbox_fusion", None) or {}
    kwargs: dict[str, Any] = {}
    processes = DEFAULT_PROCESSES
    if sandbox.get("url", None):
        # One process scores one trajectory and asks for its test cases side by side, at most four at a time.
        share = max(1, (sandbox.get("max_concurrent", None) or 64) // num_workers)
        processes = max(1, share // 4)
        kwargs = {"sandbox_fusion_url": sandbox["url"], "max_concurrent": min(4, share)}
    if sandbox.get("memory_limit_mb", None):
        kwargs["memory_limit_mb"] = sandbox["memory_limit_mb"]
    spec = function_spec(path="pkg://verl.utils.reward_score", name="default_compute_score", kwargs=kwargs)
    return ScorePool(spec, timeout_s=timeout_s, max_processes=processes)


def reward_manager_class(config: Any) -> type[RewardManagerBase]:
    """The class that `reward.reward_manager` names: registered, or imported from `module.path`."""
    manager = config.reward.reward_manager
    source = manager.get("source", None) or "register"
    if source == "register":
        return get_reward_manager_cls(manager.name)
    if source == "importlib":
        return load_extern_object(manager.module.path, manager.module.name)
    raise ConfigError(
        "unknown source", where="reward.reward_manager.source", got=source, expected="register or importlib"
    )


def load_reward_manager(config: Any, tokenizer: Any, **reward_kwargs: Any) -> RewardManagerBase:
    """The configured manager.

    `reward_kwargs` go on to its constructor (`reward_router_address`, `reward_model_tokenizer`); `compute_score`
    among them replaces the configured function. Without it the function is called in this process.
    """
    cls = reward_manager_class(config)
    compute_score = reward_kwargs.pop("compute_score", None) or get_custom_reward_fn(config)
    if compute_score is None:
        default = load_extern_object("pkg://verl.utils.reward_score", "default_compute_score")
        sandbox = config.reward.get("sandbox_fusion", None) or {}
        compute_score = functools.partial(default, sandbox_fusion_url=sandbox.get("url", None))
    accepted = inspect.signature(cls.__init__).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        # A manager that has no use for a reward model need not name its arguments.
        reward_kwargs = {key: value for key, value in reward_kwargs.items() if key in accepted}
    return cls(config=config, tokenizer=tokenizer, compute_score=compute_score, **reward_kwargs)


def extract_reward(batch: Any) -> tuple[Any, dict[str, Any]]:
    """(`rm_scores` [B,T], extras by key [B]) of a batch that was scored; no extras are {}."""
    if "rm_scores" not in batch.batch:
        raise DataError("the batch is not scored", got=sorted(batch.batch.keys()), expected="rm_scores")
    keys = batch.meta_info.get("reward_extra_keys", None) or []
    return batch.batch["rm_scores"], {key: batch.non_tensor_batch[key] for key in keys if key in batch.non_tensor_batch}


def _custom(config: Any) -> dict[str, Any] | None:
    section = config.reward.get("custom_reward_function", None) or {}
    if not section.get("path", None):
        return None
    return {
        "path": section["path"],
        "name": section.get("name", None) or "compute_score",
        "kwargs": dict(section.get("reward_kwargs", None) or {}),
    }


def _with_kwargs(function: Callable[..., Any], kwargs: dict[str, Any]) -> Callable[..., Any]:
    if not kwargs:
        return function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **given: Any) -> Any:
            return await function(*args, **given, **kwargs)

        return call_async

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        return function(*args, **given, **kwargs)

    return call
