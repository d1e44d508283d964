# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Two trainer ranks, gloo, a checkpoint-engine worker and a real vLLM server: whole updates, and updates that fail.

Every question is asked with a warm prefix cache, and the answer must be wholly that of one version.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from verl.checkpoint_engine.manager import CheckpointEngineManager
from verl.errors import ConfigError, PeerLost, TransportError, VerlError
from verl.transport.checksum import CorruptBytes
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter


@pytest.fixture(scope="module")
def world(
    rollout_section: Callable[..., Any], start_trainer: Callable[..., Any], start_replica: Callable[..., Any]
) -> Iterator[CheckpointEngineManager]:
    config = rollout_section()
    trainer = start_trainer(config)
    replica = start_replica(config)
    yield CheckpointEngineManager(config.checkpoint_engine, trainer, [replica], max_retries=1)
    asyncio.run(replica.shutdown())
    trainer.shutdown()


def corrupt_the_next_bucket(worker: Any) -> None:
    """Run inside a checkpoint-engine worker: flip a byte of the shared memory after its checksum was taken."""
    from verl.transport.sender import BucketedWeightSender

    flush = BucketedWeightSender._flush

    async def damaging(self: Any) -> None:
        BucketedWeightSender._flush = flush
        self._arena.view(self._base + self._used - 4, 1).add_(1)
        await flush(self)

    BucketedWeightSender._flush = damaging


def test_updates_reach_the_server_and_the_group_is_kept(world: Any, questions: Any) -> None:
    async def run() -> None:
        (replica,) = world.replicas
        await questions.ask(replica)
        for version in (1, 2):
            stats = await world.update_weights(version)
            assert await questions.serves(replica, version)
            assert stats["attempts"] == 1 and stats["bytes"] > 100_000
        assert stats["connect_s"] < 0.1, "the second update found the group of the first"
        assert {"connect_s", "transfer_s", "verify_s", "pause_s", "apply_s", "resume_s", "paused_s"} <= set(stats)
        assert all(isinstance(value, float) for value in stats.values())

    asyncio.run(run())


def test_generation_goes_on_while_weights_travel(world: Any, questions: Any) -> None:
    async def run() -> None:
        (replica,) = world.replicas
        await world.update_weights(1)
        states: list[tuple[str, int]] = []

        async def asking() -> None:
            while True:
                output = await questions.ask(replica, tokens=4)
                states.append((output.stop_reason, output.extra_fields["global_steps"]))

        task = asyncio.create_task(asking())
        await world.update_weights(2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert any(version == 1 and reason == "completed" for reason, version in states), states
        assert await questions.serves(replica, 2)

    asyncio.run(run())


def test_a_failing_export_leaves_the_old_version_serving_and_every_rank_through_its_gathers(
    world: Any, questions: Any
) -> None:
    async def run() -> None:
        (replica,) = world.replicas
        await world.update_weights(1)
        await world.trainer.call_async("set_trouble", {"raise_at": 5})
        with pytest.raises(TransportError, match=r"version 3 could not be published.*injected at tensor 5"):
            await world.update_weights(3)
        assert await questions.serves(replica, 1)
        await world.trainer.call_async("set_trouble", {})
        stats = await world.update_weights(3)
        assert stats["attempts"] == 1 and await questions.serves(replica, 3)

    asyncio.run(run())


def test_a_half_applied_update_is_mended_by_pushing_the_same_version_again(world: Any, questions: Any) -> None:
    async def run() -> None:
        (replica,) = world.replicas
        await world.update_weights(1)
        await world.trainer.call_async("set_trouble", {"wrong_shape_at": 20, "times": 1})
        stats = await world.update_weights(4)
        assert stats["attempts"] == 2 and await questions.serves(replica, 4)

    asyncio.run(run())


def test_a_half_applied_server_refuses_to_answer(world: Any, questions: Any) -> None:
    async def run() -> None:
        (replica,) = world.replicas
        await world.update_weights(1)
        await world.trainer.call_async("set_trouble", {"wrong_shape_at": 20})
        with pytest.raises(TransportError, match="version 5 could not be published"):
            await world.update_weights(5)
        with pytest.raises(TransportError, match="refuses to generate"):
            await questions.ask(replica)
        await world.trainer.call_async("set_trouble", {})
        await world.update_weights(5)
        assert await questions.serves(replica, 5)

    asyncio.run(run())


def test_a_damaged_bucket_stops_the_update_at_once_with_its_cause(world: Any, questions: Any) -> None:
    async def run() -> None:
        (replica,) = world.replicas
        await world.update_weights(1)
        await replica.workers[0].__ray_call__.remote(corrupt_the_next_bucket)
        with pytest.raises(CorruptBytes, match=r"model.*not those that were sent"):
            await world.update_weights(6)
        assert await questions.serves(replica, 1), "what was damaged was never applied"
        await world.update_weights(6)
        assert await questions.serves(replica, 6)

    asyncio.run(run())


def test_replicas_without_workers_are_refused_with_what_to_do(world: Any) -> None:
    manager = CheckpointEngineManager(world.config, world.trainer, [])
    with pytest.raises(ConfigError, match="set_standalone_worker_cls"):
        asyncio.run(manager.build_process_group())


def test_an_adapter_beside_the_trainer_updates_without_a_manager(
    world: Any, questions: Any, rollout_section: Any, model_section: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The colocated road: begin, send, pause, apply, resume, from the process that holds the weights."""
    for name, value in {"RANK": "0", "RAY_LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    adapter = ServerAdapter(rollout_section(), model_section)
    assert (adapter.replica_rank, adapter.rollout_rank, adapter.local_rank) == (0, 0, 0)

    async def run() -> None:
        (replica,) = world.replicas
        await adapter.resume(["weights"])
        stats = await adapter.update_weights(seeded(questions, 8), global_steps=8)
        await adapter.resume(["kv_cache"])
        assert stats["applied"] and stats["medium"] == "shm" and await questions.serves(replica, 8)
        with pytest.raises(ValueError, match="injected"):
            await adapter.update_weights(failing(), global_steps=9)
        assert await questions.serves(replica, 8)
        await adapter.release()
        stats = await adapter.update_weights(seeded(questions, 6), global_steps=6, apply=False)
        assert not stats["applied"] and await questions.serves(replica, 8)
        await world.update_weights(6)

    asyncio.run(run())


def seeded(questions: Any, seed: int) -> Iterator[tuple[str, Any]]:
    for name, parameter in questions.model(seed).named_parameters():
        yield name, parameter.detach()


def failing() -> Iterator[tuple[str, Any]]:
    raise ValueError("injected")
    yield


# From here on parts of the world die.


async def killed_in_the_export(manager: Any, version: int, file: Path, pid_of: Callable[[], int]) -> BaseException:
    """Start an update, wait until rank 0 is in the middle of its export, kill a process, return the update's error."""
    await manager.trainer.call_async("set_trouble", {"wait_at": 12, "file": str(file)})
    update = asyncio.create_task(manager.update_weights(version))
    while not file.exists() or not file.read_text():
        assert not update.done()
        await asyncio.sleep(0.05)
    os.kill(pid_of(), signal.SIGKILL)
    with pytest.raises(VerlError) as info:
        await update
    return info.value


def test_a_trainer_killed_in_the_middle_is_named_and_the_old_version_goes_on(
    world: Any, questions: Any, tmp_path: Path
) -> None:
    async def run() -> None:
        (replica,) = world.replicas
        file = tmp_path / "pid"
        error = await killed_in_the_export(world, 7, file, lambda: int(file.read_text()))
        assert isinstance(error, PeerLost) and f"pid {file.read_text()}" in str(error)
        assert await questions.serves(replica, 6)

    asyncio.run(run())
