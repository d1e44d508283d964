# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The registry of engines, and the engine that hands the stream over in one process."""

import asyncio
import re
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from verl.checkpoint_engine import base
from verl.checkpoint_engine.base import CheckpointEngineRegistry, new_engine
from verl.checkpoint_engine.colocated import ColocatedCheckpointEngine
from verl.errors import ConfigError, TransportError, UnsupportedError


def section(**overrides: object) -> object:
    return OmegaConf.create(
        {
            "backend": "nccl",
            "update_weights_bucket_megabytes": 4,
            "engine_kwargs": {},
            "custom_backend_module": None,
            **overrides,
        }
    )


@pytest.mark.parametrize("name", ["nixl", "mooncake", "kimi_ckpt_engine"])
def test_what_is_left_out_names_what_to_use(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"nccl.*gloo.*shm.*disk"):
        CheckpointEngineRegistry.get(name)


def test_an_unknown_name_is_answered_with_the_known_ones_and_the_key() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.checkpoint_engine\.backend.*did you mean 'gloo'"):
        CheckpointEngineRegistry.get("glo")


def test_an_engine_gets_the_bound_in_bytes_and_the_options_of_its_name() -> None:
    engine = new_engine(section(engine_kwargs={"nccl": {"deadline_s": 7}, "shm": {"x": 1}}), is_master=True)
    assert (engine.bucket_size, engine.is_master, engine.deadline_s) == (4 << 20, True, 7)


def test_a_module_of_the_users_may_register_an_engine(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from verl.checkpoint_engine.base import CheckpointEngineRegistry\n"
        "from verl.checkpoint_engine.colocated import ColocatedCheckpointEngine\n"
        "@CheckpointEngineRegistry.register('carrier_pigeon')\n"
        "class Pigeon(ColocatedCheckpointEngine):\n    pass\n"
    )
    engine = new_engine(section(backend="carrier_pigeon", custom_backend_module=str(file)), is_master=False)
    assert type(engine).__name__ == "Pigeon"


def test_the_colocated_engine_hands_the_stream_over_without_a_copy() -> None:
    engine = ColocatedCheckpointEngine(bucket_size=1)
    tensor = torch.ones(3)

    async def exchange() -> list[tuple[str, torch.Tensor]]:
        await engine.send_weights([("w", tensor)])
        return [item async for item in engine.receive_weights()]

    ((name, received),) = asyncio.run(exchange())
    assert name == "w" and received is tensor
    with pytest.raises(TransportError, match="no weights were sent"):
        asyncio.run(exchange_nothing(engine))


async def exchange_nothing(engine: ColocatedCheckpointEngine) -> None:
    async for _ in engine.receive_weights():
        raise AssertionError("there is nothing to receive")


def test_every_key_that_an_error_names_can_be_set() -> None:
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    root = Path(base.__file__).parents[1]
    rooms = ("transport", "checkpoint_engine", "workers/rollout/vllm_rollout")
    files = [file for room in rooms for file in (root / room).glob("*.py")]
    keys = {key for file in files for key in re.findall(r"actor_rollout_ref(?:\.\w+)+", file.read_text())}
    assert len(keys) >= 3
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer")
    missing = object()
    unknown = [key for key in keys if OmegaConf.select(config, key, default=missing) is missing]
    assert not unknown


def test_old_homes_of_manager_and_worker_answer() -> None:
    from verl.checkpoint_engine.manager import CheckpointEngineManager
    from verl.checkpoint_engine.worker import CheckpointEngineWorker

    assert base.CheckpointEngineManager is CheckpointEngineManager
    assert base.CheckpointEngineWorker is CheckpointEngineWorker
    assert base.ColocatedCheckpointEngine is ColocatedCheckpointEngine
