# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Calling asynchronous code from synchronous code, and facts that Ray leaves in the environment."""

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray

from verl.errors import ConfigError

NOSET_ENV_VARS = tuple(
    f"RAY_EXPERIMENTAL_NOSET_{name}"
    for name in (
        "CUDA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ASCEND_RT_VISIBLE_DEVICES",
        "HABANA_VISIBLE_MODULES",
        "NEURON_RT_VISIBLE_CORES",
        "TPU_VISIBLE_CHIPS",
        "ONEAPI_DEVICE_SELECTOR",
    )
)
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


def env_flag(name: str, env_vars: Mapping[str, str] = os.environ) -> bool:
    """An environment variable as a boolean: 1/true/yes/on, or 0/false/no/off/unset."""
    value = env_vars.get(name, "").strip().lower()
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise ConfigError("not a boolean", where=name, got=value, expected="1 or 0")


def ray_noset_visible_devices(env_vars: Mapping[str, str] = os.environ) -> bool:
    """Whether Ray was told to leave the visible-devices variables alone."""
    return any(env_flag(name, env_vars) for name in NOSET_ENV_VARS)


def parallel_put(data_list: list[Any], max_workers: int | None = None) -> list[ray.ObjectRef]:
    """Put each item into the object store, several at a time, in order.

    For the driver only: an object that an actor puts dies with that actor.
    """
    if not data_list:
        return []
    with ThreadPoolExecutor(max_workers or min(len(data_list), 16)) as pool:
        return list(pool.map(ray.put, data_list))


def get_event_loop() -> asyncio.AbstractEventLoop:
    """This thread's event loop; a new one where there is none, or only a closed one."""
    try:
        loop = asyncio.get_event_loop()
        if not loop.is_closed():
            return loop
    except RuntimeError:
        # Only the main thread gets a loop by itself.
        pass
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


def auto_await(func: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """Decorator for a coroutine function: inside a running loop it returns the coroutine, elsewhere the result."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        coroutine = func(*args, **kwargs)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(coroutine)
        return coroutine

    return call
