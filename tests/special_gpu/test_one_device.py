# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whole runs on one device: fully asynchronous with trainer and rollout on halves of it, and colocated; full weights
and LoRA; a soak of weight updates, a kill, and the way back."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.special_e2e.job import FULLY_ASYNC, SYNCHRONOUS, Job

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(3000)]

UPDATES = 60
PROMPTS = 8
COMMON = (
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1024",
    "actor_rollout_ref.actor.optim.lr=5e-4",
    "actor_rollout_ref.actor.fsdp_config.dtype=float32",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.rollout.dtype=float32",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.3",
    "trainer.n_gpus_per_node=1",
    "trainer.val_before_train=False",
    "trainer.test_freq=-1",
)
ASYNC = (
    "--config-name=quickstart",
    "async_training.device_share=0.5",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=shm",
    f"rollout.total_rollout_steps={UPDATES * PROMPTS}",
)
COLOCATED = (
    f"data.train_batch_size={PROMPTS}",
    "data.max_prompt_length=8",
    "data.max_response_length=4",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
    "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=1024",
    "actor_rollout_ref.rollout.enforce_eager=True",
    "actor_rollout_ref.rollout.max_model_len=16",
    "actor_rollout_ref.rollout.max_num_batched_tokens=1024",
    "actor_rollout_ref.rollout.enable_chunked_prefill=False",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    "algorithm.adv_estimator=grpo",
    "trainer.logger=[console]",
    "trainer.total_training_steps=20",
)
LORA = ("actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=16")


@pytest.fixture
def launch(digits_task: list[str], model_dir: Path, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def start(module: str, *overrides: str) -> Job:
        given = [f"actor_rollout_ref.model.path={model_dir}", *COMMON, *digits_task]
        named = [item for item in overrides if item.startswith("--")]
        changed = [item for item in overrides if not item.startswith("--")]
        jobs.append(Job(tmp_path / "run", [*named, *given, *changed], tmp_path, module=module))
        return jobs[-1]

    yield start
    for job in jobs:
        job.end()


def records(job: Job) -> list[dict[str, Any]]:
    return [record for record in job.metrics() if "actor/pg_loss" in record["data"]]


@pytest.mark.parametrize("extra", [(), LORA], ids=["full", "lora"])
def test_fully_async_on_halves_of_one_device(
    device: torch.device, launch: Callable[..., Job], extra: tuple[str, ...]
) -> None:
    killed = launch(FULLY_ASYNC, *ASYNC, *extra, "trainer.save_freq=10")
    killed.until(lambda: killed.metrics() and killed.metrics()[-1]["step"] >= 25, "version 25", deadline_s=900)
    killed.process.kill()
    killed.process.wait(timeout=60)
    assert killed.leftovers(deadline_s=120) == {}

    job = launch(FULLY_ASYNC, *ASYNC, *extra, "trainer.save_freq=10")
    assert job.wait(1500) == 0, job.text()[-3000:]
    assert [record["step"] for record in records(job)] == list(range(1, UPDATES + 1)), "each version once, over both"
    for record in records(job):
        assert record["data"]["weight_sync/bytes"] > 0 and record["data"]["weight_sync/attempts"] == 1
        assert abs(record["data"]["actor/rollout_corr/kl"]) < 0.05, "the servers have the trainer's weights"
    rewards = [record["data"]["critic/score/mean"] for record in records(job)]
    assert sum(rewards[-10:]) > sum(rewards[:10]), "it learns"
    assert job.leftovers(deadline_s=120) == {}


@pytest.mark.parametrize("extra", [(), LORA], ids=["full", "lora"])
def test_colocated_on_one_device(device: torch.device, launch: Callable[..., Job], extra: tuple[str, ...]) -> None:
    job = launch(SYNCHRONOUS, *COLOCATED, *extra)
    assert job.wait(1500) == 0, job.text()[-3000:]
    assert [record["step"] for record in records(job)] == list(range(1, 21))
    rewards = [record["data"]["critic/score/mean"] for record in records(job)]
    assert sum(rewards[-5:]) > sum(rewards[:5]), "it learns"
    assert job.leftovers(deadline_s=120) == {}
