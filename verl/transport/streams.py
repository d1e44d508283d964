# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Streams of (name, tensor), synchronous or not, and how to end one without losing the first error."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import TypeVar

import torch

T = TypeVar("T")
Weights = Iterable[tuple[str, torch.Tensor]] | AsyncIterable[tuple[str, torch.Tensor]]


async def as_async(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """The items, whichever kind of iterable they come in."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def drain(items: Iterable[T] | AsyncIterable[T]) -> int:
    """Consume what is left and count it.

    A rank that stops in the middle of an export leaves the others waiting in its all-gather.
    """
    count = 0
    async for _ in as_async(items):
        count += 1
    return count


def run_all(steps: Iterable[Callable[[], object]], first: BaseException | None = None) -> None:
    """Run every clean-up step. Their errors join the end of `first`'s chain; without a `first` the first is raised."""
    pending = first
    for step in steps:
        try:
            step()
        except Exception as error:
            pending = chain(pending, error)
    if first is None and pending is not None:
        raise pending


def chain(first: BaseException | None, later: BaseException) -> BaseException:
    """`first`, with `later` at the end of its context, so that a traceback shows both and `first` is raised."""
    if first is None or first is later:
        return later
    last = first
    while last.__context__ is not None and last.__context__ is not later:
        last = last.__context__
    last.__context__ = later
    later.__context__ = None if later.__context__ is first else later.__context__
    return first
