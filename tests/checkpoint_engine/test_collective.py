# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Broadcast over gloo between ranks that are threads here: same sockets, same store, separate groups."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import torch

from verl.checkpoint_engine.base import CheckpointEngineRegistry
from verl.checkpoint_engine.collective import CollectiveCheckpointEngine
from verl.errors import TransportError, VerlError
from verl.transport.checksum import CorruptBytes

MB = 1 << 20
WEIGHTS = {
    "big": torch.randn(600_000),
    "t": torch.arange(6.0).reshape(2, 3).t(),
    "scalar": torch.tensor(3.5),
    "empty": torch.empty(0, 4),
    "bf16": torch.randn(33).bfloat16(),
    "int": torch.arange(9),
    "precise": torch.tensor([1 + 2**-12]),
    **{f"layer{i}": torch.full((50_000,), float(i)) for i in range(10)},
}


class Rank:
    """A rollout rank on a thread."""

    def __init__(self, engine: CollectiveCheckpointEngine, kwargs: dict[str, Any]) -> None:
        self.engine = engine
        self.received: dict[str, torch.Tensor] = {}
        self.error: BaseException | None = None
        self._kwargs = kwargs
        self._thread: threading.Thread | None = None
        self.start(lambda: engine.init_process_group(**kwargs))

    def start(self, work: Callable[[], object]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def receive(self) -> None:
        self.received, self.error = {}, None

        async def collect() -> None:
            async for name, tensor in self.engine.receive_weights():
                self.received[name] = tensor

        self.start(lambda: asyncio.run(collect()))

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def connect(ranks: int, trainers: int = 1, **options: Any) -> tuple[list[CollectiveCheckpointEngine], list[Rank]]:
    options.setdefault("bucket_size", MB)
    options.setdefault("deadline_s", 20.0)
    trainer = [CollectiveCheckpointEngine(is_master=i == 0, **options) for i in range(trainers)]
    engines = [CollectiveCheckpointEngine(**options) for _ in range(ranks)]
    metadata = [engine.prepare() for engine in [*trainer, *engines]]
    for_trainer, for_rollout = CollectiveCheckpointEngine.build_topology(trainers, ranks, metadata)
    rollout = [Rank(e, {k: v[i] for k, v in for_rollout.items()}) for i, e in enumerate(engines)]
    for i, engine in enumerate(trainer):
        engine.init_process_group(**{k: v[i] for k, v in for_trainer.items()})
    for rank in rollout:
        rank.join()
        assert rank.error is None
    return trainer, rollout


@pytest.fixture(scope="module")
def group() -> Iterator[tuple[CollectiveCheckpointEngine, list[Rank]]]:
    trainer, rollout = connect(2)
    yield trainer[0], rollout
    for engine in [trainer[0], *(rank.engine for rank in rollout)]:
        engine.finalize()


def same(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return list(got) == list(expected) and all(
        torch.equal(got[k], expected[k]) and got[k].dtype == expected[k].dtype for k in expected
    )


def test_every_rank_gets_every_tensor_and_the_group_serves_again(group: Any) -> None:
    master, rollout = group
    for shift in (0.0, 1.0):
        weights = {k: v + shift if v.is_floating_point() else v for k, v in WEIGHTS.items()}
        for rank in rollout:
            rank.receive()
        stats = asyncio.run(master.send_weights(iter(weights.items())))
        for rank in rollout:
            rank.join()
            assert rank.error is None and same(rank.received, weights)
        assert stats.bytes == sum(t.numel() * t.element_size() for t in weights.values())
        assert stats.tensors == len(weights) and stats.buckets >= 8


def test_what_was_received_keeps_its_values_when_buffers_are_filled_again(group: Any) -> None:
    master, rollout = group
    kept = []
    for fill in (1.0, 2.0):
        rollout[0].receive()
        rollout[1].receive()
        asyncio.run(master.send_weights([(f"w{i}", torch.full((100_000,), fill)) for i in range(8)]))
        rollout[0].join()
        rollout[1].join()
        kept.append(rollout[0].received)
    assert all(t.unique().item() == 1.0 for t in kept[0].values())
    assert all(t.unique().item() == 2.0 for t in kept[1].values())


def test_only_used_bytes_are_broadcast(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    master, rollout = group
    sent: list[int] = []
    original = CollectiveCheckpointEngine.broadcast

    async def counting(self: Any, index: int, tensor: torch.Tensor, what: str) -> None:
        if self is master and what.startswith("bucket"):
            sent.append(tensor.numel())
        await original(self, index, tensor, what)

    monkeypatch.setattr(CollectiveCheckpointEngine, "broadcast", counting)
    for rank in rollout:
        rank.receive()
    stats = asyncio.run(master.send_weights([("w", torch.zeros(10))]))
    for rank in rollout:
        rank.join()
    assert sent == [40] and stats.bytes == 40 and stats.tensors == 1


def test_an_error_of_the_export_reaches_the_receivers_and_the_group_survives(group: Any) -> None:
    master, rollout = group

    def broken() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", torch.zeros(300_000)
        raise RuntimeError("injected in the export")

    for rank in rollout:
        rank.receive()
    with pytest.raises(RuntimeError, match="injected in the export"):
        asyncio.run(master.send_weights(broken()))
    for rank in rollout:
        rank.join()
        assert isinstance(rank.error, TransportError) and "injected in the export" in str(rank.error)
    for rank in rollout:
        rank.receive()
    asyncio.run(master.send_weights(iter(WEIGHTS.items())))
    for rank in rollout:
        rank.join()
        assert same(rank.received, WEIGHTS)


def test_a_tensor_that_cannot_be_sent_does_not_stop_the_export(group: Any) -> None:
    master, rollout = group
    consumed = []

    def stream() -> Iterator[tuple[str, torch.Tensor]]:
        for i in range(5):
            consumed.append(i)
            yield f"w{i}", torch.empty(3, device="meta") if i == 1 else torch.zeros(3)

    for rank in rollout:
        rank.receive()
    with pytest.raises(TransportError, match="w1"):
        asyncio.run(master.send_weights(stream()))
    assert consumed == [0, 1, 2, 3, 4], "the other trainer ranks wait in the all-gathers of the rest"
    for rank in rollout:
        rank.join()
        assert isinstance(rank.error, TransportError)


def test_damaged_bytes_are_found_by_the_rank_that_has_them_and_the_others_get_theirs(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, rollout = group
    original = CollectiveCheckpointEngine.broadcast

    async def damaging(self: Any, index: int, tensor: torch.Tensor, what: str) -> None:
        await original(self, index, tensor, what)
        if self is rollout[1].engine and what == "bucket 2":
            tensor[17] ^= 1

    monkeypatch.setattr(CollectiveCheckpointEngine, "broadcast", damaging)
    for rank in rollout:
        rank.receive()
    asyncio.run(master.send_weights(iter(WEIGHTS.items())))
    for rank in rollout:
        rank.join()
    assert rollout[0].error is None and same(rollout[0].received, WEIGHTS)
    assert isinstance(rollout[1].error, CorruptBytes) and "not those that were sent" in str(rollout[1].error)


def test_the_next_bucket_is_filled_while_one_travels(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    master, rollout = group
    order: list[str] = []
    original = CollectiveCheckpointEngine.broadcast

    async def noting(self: Any, index: int, tensor: torch.Tensor, what: str) -> None:
        await original(self, index, tensor, what)
        if self is master and what.startswith("bucket"):
            order.append(what)

    async def stream() -> AsyncIterator[tuple[str, torch.Tensor]]:
        for i in range(6):
            order.append(f"fill {i}")
            yield f"w{i}", torch.zeros(MB // 8 - 64)
            await asyncio.sleep(0.05)

    monkeypatch.setattr(CollectiveCheckpointEngine, "broadcast", noting)
    for rank in rollout:
        rank.receive()
    asyncio.run(master.send_weights(stream()))
    for rank in rollout:
        rank.join()
    assert order.index("bucket 0") < order.index("fill 4"), order
    assert order.index("fill 2") < order.index("bucket 1") or order.index("fill 3") < order.index("bucket 2"), order


def test_other_trainer_ranks_only_consume() -> None:
    trainer, rollout = connect(1, trainers=3)
    rollout[0].receive()
    counted = [0, 0, 0]

    def stream(index: int) -> Iterator[tuple[str, torch.Tensor]]:
        for item in WEIGHTS.items():
            counted[index] += 1
            yield item

    async def send() -> list[Any]:
        return await asyncio.gather(*(engine.send_weights(stream(i)) for i, engine in enumerate(trainer)))

    stats = asyncio.run(send())
    rollout[0].join()
    assert same(rollout[0].received, WEIGHTS)
    assert counted == [len(WEIGHTS)] * 3 and [item is None for item in stats] == [False, True, True]
    for engine in [*trainer, rollout[0].engine]:
        engine.finalize()
        engine.finalize()


def test_a_receiver_that_leaves_ends_the_update_by_name_and_a_new_group_works() -> None:
    trainer, rollout = connect(1, deadline_s=5.0)
    rollout[0].engine.finalize()
    with pytest.raises(VerlError, match="rollout ranks"):
        asyncio.run(trainer[0].send_weights(iter(WEIGHTS.items())))
    engines = [trainer[0], rollout[0].engine]
    metadata = [engine.prepare() for engine in engines]
    for_trainer, for_rollout = CollectiveCheckpointEngine.build_topology(1, 1, metadata)
    again = Rank(engines[1], {k: v[0] for k, v in for_rollout.items()})
    engines[0].init_process_group(**{k: v[0] for k, v in for_trainer.items()})
    again.join()
    again.receive()
    asyncio.run(engines[0].send_weights(iter(WEIGHTS.items())))
    again.join()
    assert same(again.received, WEIGHTS)
    for engine in engines:
        engine.finalize()


def test_dtypes_are_kept_unless_one_is_asked_for() -> None:
    trainer, rollout = connect(1, rollout_dtype="bfloat16")
    rollout[0].receive()
    asyncio.run(trainer[0].send_weights([("w", torch.ones(3)), ("ids", torch.arange(3))]))
    rollout[0].join()
    assert rollout[0].received["w"].dtype is torch.bfloat16 and rollout[0].received["ids"].dtype is torch.int64
    for engine in [*trainer, rollout[0].engine]:
        engine.finalize()


@pytest.mark.parametrize("name", ["nccl", "hccl", "gloo"])
def test_the_three_names_are_one_class(name: str) -> None:
    assert CheckpointEngineRegistry.get(name) is CollectiveCheckpointEngine


def test_not_connected_is_said() -> None:
    engine = CollectiveCheckpointEngine(MB)
    with pytest.raises(TransportError, match="not connected"):
        asyncio.run(engine.send_weights([]))
