# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A colocated vLLM server gives its device memory to training and wakes up as the same model."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from tests.workers.rollout.conftest import ROLLOUT
from verl.platform import current_platform
from verl.workers.rollout.schemas import RolloutMode
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

GREEDY = {"temperature": 0.0, "max_tokens": 16, "ignore_eos": True, "logprobs": True}


def free_bytes() -> int:
    return current_platform().memory_info()["free"]


async def answer(server: Any) -> Any:
    return await server.generate([3, 4, 5, 6], dict(GREEDY), "r")


async def sleep_and_wake(server: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"at start": free_bytes()}
    await server.launch_server()
    try:
        told |= {"before": await answer(server), "awake": free_bytes()}
        await server.sleep()
        told["asleep"] = free_bytes()
        waiting = asyncio.ensure_future(answer(server))
        await asyncio.sleep(1)
        told["answered asleep"] = waiting.done()
        await server.wake_up(["weights"])
        await server.wake_up(["kv_cache"])
        told |= {"waited": await waiting, "after": await answer(server), "awake again": free_bytes()}
    finally:
        await server.shutdown()
    return told


def test_sleep_gives_the_memory_back_and_the_answers_stay_the_same(
    device: torch.device, model_dir: Path, job_env: Path
) -> None:
    config = OmegaConf.create(ROLLOUT | {"gpu_memory_utilization": 0.3, "enforce_eager": True})
    model = OmegaConf.create({"path": str(model_dir), "trust_remote_code": False, "lora_rank": 0})
    told = asyncio.run(sleep_and_wake(vLLMHttpServer(config, model, RolloutMode.COLOCATED)))
    assert told["before"].token_ids == told["waited"].token_ids == told["after"].token_ids
    assert told["before"].log_probs == pytest.approx(told["after"].log_probs, abs=1e-5)
    assert not told["answered asleep"], "a request waits while the engine sleeps"
    if device.type != "cpu":
        taken = told["at start"] - told["awake"]
        given_back = told["asleep"] - told["awake"]
        # What stays is the context, the graphs and the communicators.
        assert given_back >= 0.8 * taken - (2 << 30), told
        assert told["awake again"] <= told["asleep"] - given_back // 2, "the cache is there again"
