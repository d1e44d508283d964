# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Two trainer ranks, gloo, a checkpoint-engine worker and a real vLLM server: whole updates, and updates that fail."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.checkpoint_engine.conftest import answer, greedy, seeded_model
from verl.checkpoint_engine.manager import CheckpointEngineManager


@pytest.fixture(scope="module")
def world(
    rollout_section: Callable[..., Any], start_trainer: Callable[..., Any], start_replica: Callable[..., Any]
) -> Iterator[Any]:
    config = rollout_section()
    trainer = start_trainer(config)
    replica = start_replica(config)
    manager = CheckpointEngineManager(config.checkpoint_engine, trainer, [replica], max_retries=1)
    yield manager
    asyncio.run(replica.shutdown())
    trainer.shutdown()


def test_an_update_reaches_the_server_and_the_next_one_reuses_the_group(world: Any, tiny_model_dir: Any) -> None:
    asyncio.run(_two_updates(world, str(tiny_model_dir)))


async def _two_updates(manager: Any, model_dir: str) -> None:
    replica = manager.replicas[0]
    await answer(replica)
    for version in (1, 2):
        stats = await manager.update_weights(version)
        output = await answer(replica)
        assert output.token_ids == greedy(seeded_model(model_dir, version)), f"version {version}, prefix cache warm"
        assert output.extra_fields["global_steps"] == version
        assert stats["attempts"] == 1 and stats["bytes"] > 100_000
    assert stats["connect_s"] < 0.01, "the group of the first update is kept"
