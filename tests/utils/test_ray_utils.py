# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Event loops from synchronous code, and Ray's flags."""

import asyncio
import threading

import pytest
import ray

from verl.errors import ConfigError
from verl.utils.ray_utils import auto_await, env_flag, get_event_loop, parallel_put, ray_noset_visible_devices


@auto_await
async def double(value: int) -> int:
    """Twice the value."""
    await asyncio.sleep(0)
    return 2 * value


class Manager:
    @classmethod
    @auto_await
    async def create(cls, value: int) -> "Manager":
        manager = cls()
        manager.value = await double(value)
        return manager


def test_a_coroutine_function_is_called_from_both_worlds() -> None:
    assert double(2) == 4
    assert double.__doc__ == "Twice the value."
    assert Manager.create(3).value == 6

    async def inside() -> tuple[int, int]:
        return await double(2), (await Manager.create(1)).value

    assert asyncio.run(inside()) == (4, 2)


def test_every_thread_has_a_loop_that_is_open() -> None:
    found: list[asyncio.AbstractEventLoop] = []

    def look() -> None:
        loop = get_event_loop()
        found.append(loop)
        found.append(get_event_loop())
        loop.close()
        found.append(get_event_loop())
        found[-1].close()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(10)
    first, again, after_close = found
    assert first is again
    assert after_close is not first

    async def running() -> bool:
        return get_event_loop() is asyncio.get_running_loop()

    assert asyncio.run(running())


@pytest.mark.parametrize(
    ("text", "on"), [("1", True), ("true", True), ("TRUE", True), ("0", False), ("false", False), ("", False)]
)
def test_flags_are_booleans_not_strings(text: str, on: bool) -> None:
    assert env_flag("F", {"F": text}) is on
    for name in ("CUDA", "HIP", "ROCR", "ASCEND_RT"):
        assert ray_noset_visible_devices({f"RAY_EXPERIMENTAL_NOSET_{name}_VISIBLE_DEVICES": text}) is on


def test_an_unset_flag_is_off_and_a_strange_one_is_refused() -> None:
    assert not ray_noset_visible_devices({})
    with pytest.raises(ConfigError, match=r"F: not a boolean.*'maybe'"):
        env_flag("F", {"F": "maybe"})


def test_many_objects_are_put_in_order(ray_cluster: None) -> None:
    refs = parallel_put(list(range(20)), max_workers=4)
    assert ray.get(refs, timeout=30) == list(range(20))
    assert parallel_put([]) == []
