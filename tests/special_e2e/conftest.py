# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Jobs that are ended whatever a test does."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.special_e2e.job import GENERATION, ONE_STEP_OFF, SYNCHRONOUS, Job


@pytest.fixture()
def launch(digits_task: list[str], tiny_model_dir: Path, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Start a small job: 8 prompts × 8 trajectories an update, no validation unless asked for."""
    jobs: list[Job] = []

    def start(*overrides: str, out: Path | None = None) -> Job:
        small = [
            "--config-name=quickstart",
            f"actor_rollout_ref.model.path={tiny_model_dir}",
            "actor_rollout_ref.actor.ppo_mini_batch_size=8",
            "actor_rollout_ref.rollout.n=8",
            "actor_rollout_ref.actor.optim.lr=2e-3",
            "rollout.total_rollout_steps=160",
            "trainer.val_before_train=False",
            "trainer.test_freq=-1",
            "trainer.save_freq=-1",
        ]
        jobs.append(Job(out or tmp_path / "run", [*small, *digits_task, *overrides], tmp_path))
        return jobs[-1]

    def start_synchronous(*overrides: str, module: str = SYNCHRONOUS) -> Job:
        small = [
            f"actor_rollout_ref.model.path={tiny_model_dir}",
            "data.train_batch_size=8",
            "data.max_prompt_length=8",
            "data.max_response_length=4",
            "data.dataloader_num_workers=0",
            "actor_rollout_ref.actor.ppo_mini_batch_size=8",
            "actor_rollout_ref.actor.use_dynamic_bsz=True",
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1024",
            "actor_rollout_ref.actor.optim.lr=2e-3",
            "actor_rollout_ref.actor.fsdp_config.dtype=float32",
            "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
            "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=1024",
            "actor_rollout_ref.rollout.name=vllm",
            "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
            "actor_rollout_ref.rollout.n=8",
            "actor_rollout_ref.rollout.dtype=float32",
            "actor_rollout_ref.rollout.enforce_eager=True",
            "actor_rollout_ref.rollout.max_model_len=16",
            "actor_rollout_ref.rollout.max_num_batched_tokens=1024",
            "actor_rollout_ref.rollout.enable_chunked_prefill=False",
            "actor_rollout_ref.rollout.agent.num_workers=1",
            "reward.num_workers=1",
            "algorithm.adv_estimator=grpo",
            "trainer.n_gpus_per_node=1",
            "trainer.logger=[console]",
            "trainer.val_before_train=False",
            "trainer.test_freq=-1",
            "trainer.save_freq=-1",
        ]
        jobs.append(Job(tmp_path / "run", [*small, *digits_task, *overrides], tmp_path, module=module))
        return jobs[-1]

    def start_one_step_off(*overrides: str) -> Job:
        two_pools = ["rollout.n_gpus_per_node=1", "actor_rollout_ref.rollout.checkpoint_engine.backend=shm"]
        return start_synchronous(*two_pools, *overrides, module=ONE_STEP_OFF)

    start.synchronous = start_synchronous
    start.one_step_off = start_one_step_off
    start.generation = functools.partial(start_synchronous, module=GENERATION)
    yield start
    for job in jobs:
        job.end()
