# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Batches that are generated when they are asked for: groups of prompts, ReMax's baseline, the place in the data."""

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch.utils.data import Dataset

from verl.experimental.agent_loop.jobs import jobs_of
from verl.protocol import DataProto
from verl.trainer.ppo.generate_now import GenerateNow
from verl.utils.dataset.loader import make_train_loader
from verl.utils.rollout_skip import RolloutSkip

N = 3


class Questions(Dataset):
    def __init__(self, count: int) -> None:
        self.dataframe = [{"row": index} for index in range(count)]

    def __len__(self) -> int:
        return len(self.dataframe)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"raw_prompt": [{"role": "user", "content": str(index)}], "filler": torch.zeros(1)}


class Loops:
    """Stands where the agent loops stand: greedy answers are worth `greedy`, others 1; None is a failed reward."""

    def __init__(self, greedy: list[float | None]) -> None:
        self.greedy = greedy
        self.calls: list[DataProto] = []

    async def generate_sequences(self, prompts: DataProto) -> DataProto:
        self.calls.append(prompts)
        count = len(prompts)
        greedy = all(job.greedy for job in jobs_of(prompts))
        scores = self.greedy if greedy else [1.0] * count
        failed = [score is None for score in scores]
        return DataProto.from_dict(
            tensors={
                "rm_scores": torch.tensor([[0.0, score or 0.0] for score in scores]),
                "response_mask": torch.tensor([[0, 0] if bad else [1, 1] for bad in failed]),
                "attention_mask": torch.ones(count, 3, dtype=torch.int64),
            },
            non_tensors={
                "uid": prompts.non_tensor_batch["uid"],
                "reward_error": np.array(["boom" if bad else None for bad in failed], dtype=object),
            },
        )


def source(
    loops: Loops,
    estimator: str = "grpo",
    rows: int = 8,
    batch: int = 2,
    epochs: int = 2,
    skip: RolloutSkip | None = None,
) -> GenerateNow:
    async def nothing() -> None: ...

    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": {"n": N}},
            "algorithm": {"adv_estimator": estimator},
            "trainer": {"total_epochs": epochs, "balance_batch": False},
        }
    )
    data = OmegaConf.create({"train_batch_size": batch, "shuffle": False, "dataloader_num_workers": 0})
    return GenerateNow(config, make_train_loader(Questions(rows), data), loops, nothing, row_multiple=1, skip=skip)


def test_each_prompt_is_answered_by_a_group_of_its_own() -> None:
    loops = Loops([])
    batch = asyncio.run(source(loops).next_batch(1, {}))
    (asked,) = loops.calls
    assert len(batch) == 2 * N and [job.n for job in jobs_of(asked)] == [N, N]
    assert not any(job.greedy or job.validate for job in jobs_of(asked))
    assert "reward_baselines" not in batch.batch


def test_a_prompt_has_the_same_uid_in_every_run_and_another_in_every_epoch() -> None:
    def uids(parts: GenerateNow) -> list[str]:
        batches = [asyncio.run(parts.next_batch(1, {})) for _ in range(8)]
        return [uid for batch in batches for uid in batch.non_tensor_batch["uid"][::N]]

    first, again = uids(source(Loops([]))), uids(source(Loops([])))
    assert first == again and len(set(first)) == 16


def test_remax_compares_with_one_greedy_answer_a_prompt() -> None:
    loops, metrics = Loops([0.2, 0.6]), {}
    batch = asyncio.run(source(loops, "remax").next_batch(1, metrics))
    assert metrics["timing_s/gen_max"] >= 0
    assert sorted(len(call) for call in loops.calls) == [2, 2 * N]
    assert batch.batch["reward_baselines"].tolist() == pytest.approx([0.2] * N + [0.6] * N)


def test_a_greedy_answer_without_a_score_is_no_baseline_of_zero() -> None:
    batch = asyncio.run(source(Loops([None, 0.6]), "remax").next_batch(1, {}))
    baselines = batch.batch["reward_baselines"].tolist()
    assert all(math.isnan(value) for value in baselines[:N]) and baselines[N:] == pytest.approx([0.6] * N)


@pytest.mark.parametrize("stop", range(1, 9))
def test_a_resumed_source_has_the_batches_and_the_epoch_that_were_left(stop: int) -> None:
    def rest(parts: GenerateNow, count: int | None = None) -> list[tuple[int, list[str]]]:
        async def scenario() -> list[tuple[int, list[str]]]:
            found: list[tuple[int, list[str]]] = []
            metrics: dict[str, Any] = {}
            while (count is None or len(found) < count) and await parts.next_batch(1, metrics) is not None:
                prompts = parts.agent_loops.calls[-1].non_tensor_batch["raw_prompt"]
                found.append((metrics["training/epoch"], [messages[0]["content"] for messages in prompts[::N]]))
            return found

        return asyncio.run(scenario())

    whole = rest(source(Loops([])))
    first, second = source(Loops([])), source(Loops([]))
    assert len(whole) == 8 and rest(first, stop) == whole[:stop]
    second.restore(first.position(), first.loader.state_dict())
    assert rest(second) == whole[stop:]


def test_a_batch_from_disk_takes_the_place_of_that_of_its_step(tmp_path: Path) -> None:
    def run() -> tuple[Loops, list[list[str]]]:
        loops = Loops([])
        rollout = {
            "n": N,
            "prompt_length": 1,
            "response_length": 2,
            "skip": {"enable": True, "dump_dir": str(tmp_path)},
        }
        config = OmegaConf.create(
            {
                "actor_rollout_ref": {"rollout": rollout},
                "data": {"train_batch_size": 2},
                "trainer": {"project_name": "p", "experiment_name": "e"},
            }
        )
        skip = RolloutSkip(config, loops)
        skip.wrap_generate_sequences()
        batches = source(loops, skip=skip)
        made = [asyncio.run(batches.next_batch(step, {})) for step in (1, 2)]
        return loops, [batch.non_tensor_batch["uid"].tolist() for batch in made]

    first, wanted = run()
    second, found = run()
    assert found == wanted and len(wanted[0]) == 2 * N
    # One step is written unless more are asked for.
    assert (len(first.calls), len(second.calls)) == (2, 1)
