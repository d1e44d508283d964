# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The two roads of one host and of one file system, with two rollout ranks and a second trainer rank."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.checkpoint_engine.disk import STABLE
from verl.checkpoint_engine.shm import ShmMember
from verl.errors import ConfigError, TransportError, WaitTimeout
from verl.transport.checksum import CorruptBytes

WEIGHTS = {
    "big": torch.randn(600_000),
    "t": torch.arange(6.0).reshape(2, 3).t(),
    "scalar": torch.tensor(3.5),
    "empty": torch.empty(0, 4),
    "bf16": torch.randn(33).bfloat16(),
    "precise": torch.tensor([1 + 2**-12]),
}


@pytest.fixture(params=["shm", "disk"])
def backend(request: pytest.FixtureRequest, job_env: Path) -> str:
    return request.param


def connect(backend: str, **options: Any) -> tuple[list[CheckpointEngine], list[CheckpointEngine]]:
    options = {"bucket_size": 1 << 20, "deadline_s": 10.0, **options}
    trainer = [CheckpointEngineRegistry.new(backend, is_master=i == 0, **options) for i in range(2)]
    rollout = [CheckpointEngineRegistry.new(backend, **options) for _ in range(2)]
    reconnect(trainer, rollout)
    return trainer, rollout


def reconnect(trainer: list[CheckpointEngine], rollout: list[CheckpointEngine]) -> None:
    metadata = [engine.prepare() for engine in [*trainer, *rollout]]
    for_trainer, for_rollout = type(trainer[0]).build_topology(len(trainer), len(rollout), metadata)
    for engines, kwargs in ((trainer, for_trainer), (rollout, for_rollout)):
        for i, engine in enumerate(engines):
            engine.init_process_group(**{key: values[i] for key, values in kwargs.items()})


async def update(trainer: list[Any], rollout: list[Any], weights: Any, version: int | None = None) -> list[Any]:
    async def collect(engine: Any) -> dict[str, torch.Tensor]:
        return {name: tensor async for name, tensor in engine.receive_weights(global_steps=version)}

    sending = [engine.send_weights(weights(), global_steps=version) for engine in trainer]
    return await asyncio.gather(*sending, *(collect(engine) for engine in rollout), return_exceptions=True)


def same(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return list(got) == list(expected) and all(
        torch.equal(got[k], expected[k]) and got[k].dtype == expected[k].dtype for k in expected
    )


def test_every_rollout_rank_gets_everything_twice_in_a_row(backend: str) -> None:
    trainer, rollout = connect(backend)
    for version in (3, 4):
        weights = {name: tensor + version for name, tensor in WEIGHTS.items()}
        stats, nothing, *received = asyncio.run(update(trainer, rollout, lambda w=weights: iter(w.items()), version))
        assert all(same(item, weights) for item in received)
        assert stats.bytes == sum(t.numel() * t.element_size() for t in weights.values()) and nothing is None
    for engine in [*trainer, *rollout]:
        engine.finalize()


def test_a_failing_export_reaches_all_and_the_next_update_works(backend: str) -> None:
    trainer, rollout = connect(backend)

    def broken() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", torch.zeros(400_000)
        raise RuntimeError("injected")

    failed, _, *others = asyncio.run(update(trainer, rollout, broken))
    assert isinstance(failed, RuntimeError)
    assert all(isinstance(error, TransportError) and "injected" in str(error) for error in others)
    reconnect(trainer, rollout)
    _, _, *received = asyncio.run(update(trainer, rollout, lambda: iter(WEIGHTS.items())))
    assert all(same(item, WEIGHTS) for item in received)
    for engine in [*trainer, *rollout]:
        engine.finalize()


def test_shared_memory_between_hosts_is_refused_with_the_key_to_set() -> None:
    engine = CheckpointEngineRegistry.get("shm")
    with pytest.raises(ConfigError, match=r"actor_rollout_ref\.rollout\.checkpoint_engine\.backend=nccl"):
        engine.build_topology(1, 1, [ShmMember("a", "ipc://x"), ShmMember("b")])


def test_a_directory_without_the_mark_is_waited_for_and_then_named(tmp_path: Path) -> None:
    _, rollout = connect("disk", path=str(tmp_path), deadline_s=0.4)

    async def receive() -> None:
        async for _ in rollout[0].receive_weights():
            raise AssertionError("nothing was written")

    with pytest.raises(WaitTimeout, match=rf"{tmp_path}/\w+-0/{STABLE} from trainer rank 0"):
        asyncio.run(receive())


def test_a_byte_damaged_on_disk_is_found_with_its_tensor(tmp_path: Path) -> None:
    trainer, rollout = connect("disk", path=str(tmp_path))
    asyncio.run(trainer[0].send_weights([("good", torch.ones(100)), ("bad", torch.ones(100))]))
    (file,) = tmp_path.glob("*/*.safetensors")
    data = bytearray(file.read_bytes())
    data[8 + int.from_bytes(data[:8], "little") + 3] ^= 1
    file.write_bytes(data)

    async def receive() -> list[str]:
        return [name async for name, _ in rollout[0].receive_weights()]

    with pytest.raises(CorruptBytes, match=r"good|bad"):
        asyncio.run(receive())


def test_only_the_last_two_updates_stay_on_disk_and_none_at_the_end(tmp_path: Path) -> None:
    trainer, rollout = connect("disk", path=str(tmp_path))
    for _ in range(4):
        asyncio.run(update(trainer, rollout, lambda: iter(WEIGHTS.items())))
        assert len(os.listdir(tmp_path)) <= 2
    trainer[0].finalize()
    assert os.listdir(tmp_path) == []
