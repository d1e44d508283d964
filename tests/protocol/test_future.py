# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Futures: nothing is fetched before it is asked for, and shares agree with the whole."""

from concurrent.futures import Future
from typing import Any

import pytest
import torch

from verl.errors import WaitTimeout
from verl.protocol import DataProto, DataProtoFuture
from verl.protocol import future as future_module


class Mailbox:
    """Handles are names; counts what is fetched."""

    def __init__(self, **parts: DataProto) -> None:
        self.parts = parts
        self.fetched: list[str] = []

    def __call__(self, handles: list[Any]) -> list[DataProto]:
        self.fetched += handles
        return [self.parts[handle] for handle in handles]


def part(*values: int) -> DataProto:
    return DataProto.from_dict({"x": torch.tensor(values)})


def test_the_value_is_the_concatenation_of_the_parts() -> None:
    mailbox = Mailbox(a=part(1, 2), b=part(3, 4))
    future = DataProtoFuture.concat(["a", "b"], fetch=mailbox)
    assert mailbox.fetched == []
    assert future.get().batch["x"].tolist() == [1, 2, 3, 4]


def test_chunks_of_chunks_are_shares_of_the_share() -> None:
    mailbox = Mailbox(a=part(1, 2, 3), b=part(4, 5, 6))
    halves = DataProtoFuture.concat(["a", "b"], fetch=mailbox).chunk(2)
    thirds = halves[1].chunk(3)
    assert mailbox.fetched == []
    assert [half.get().batch["x"].tolist() for half in halves] == [[1, 2, 3], [4, 5, 6]]
    assert [third.get().batch["x"].tolist() for third in thirds] == [[4], [5], [6]]


def test_plain_futures_and_whatever_makes_one_need_no_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    ready: Future = Future()
    ready.set_result(part(1, 2))

    class Reference:
        def future(self) -> Future:
            return ready

    assert DataProtoFuture.concat([ready, Reference()]).get().batch["x"].tolist() == [1, 2, 1, 2]
    monkeypatch.setattr(future_module, "DEFAULT_DEADLINE_S", 0.05)
    with pytest.raises(WaitTimeout, match=r"for value from <Future .*pending>"):
        DataProtoFuture.concat([Future()]).get()
