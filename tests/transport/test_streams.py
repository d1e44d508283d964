# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The first error is the one that is seen."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from verl.transport.streams import as_async, chain, drain, run_all


def fail(message: str) -> None:
    raise OSError(message)


def test_clean_up_never_hides_the_first_error_and_is_chained_to_it() -> None:
    ran = []
    first = ValueError("X")
    run_all([lambda: fail("Y"), lambda: ran.append(1)], first)
    assert ran == [1], "a failing step does not stop the next one"
    assert isinstance(first.__context__, OSError) and str(first.__context__) == "Y"


def test_without_a_first_error_clean_up_raises_its_own() -> None:
    with pytest.raises(OSError, match="A") as info:
        run_all([lambda: fail("A"), lambda: fail("B")])
    assert str(info.value.__context__) == "B"


def test_chaining_makes_no_circle() -> None:
    first = ValueError("X")
    later = OSError("Y")
    later.__context__ = first
    assert chain(first, later) is first
    assert first.__context__ is later and later.__context__ is None


def test_both_kinds_of_stream_are_read_and_drained_to_their_end() -> None:
    def plain() -> Iterator[int]:
        yield from range(3)

    async def other() -> AsyncIterator[int]:
        for item in range(3):
            yield item

    async def collect(items: object) -> list[int]:
        return [item async for item in as_async(items)]

    assert asyncio.run(collect(plain())) == asyncio.run(collect(other())) == [0, 1, 2]
    assert asyncio.run(drain(plain())) == asyncio.run(drain(other())) == 3
