# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Validation: answers belong together by uid, failed rewards count nowhere, the dump tells everything."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from word_tokenizer import word_tokenizer

from verl.protocol import DataProto
from verl.trainer.ppo.validation import validate

TOKENIZER = word_tokenizer()
W1, W2 = TOKENIZER.encode("w1 w2", add_special_tokens=False)


class Answers:
    """Stands where the agent loops stand: answers each row with the next given score (None: the reward failed)."""

    def __init__(self, scores: list[float | None]) -> None:
        self.scores = list(scores)
        self.seen: list[dict[str, Any]] = []

    async def generate_sequences(self, batch: DataProto) -> DataProto:
        count = len(batch)
        scores, self.scores = self.scores[:count], self.scores[count:]
        self.seen.append(dict(batch.meta_info))
        failed = [score is None for score in scores]
        columns = {
            "request_id": [f"r{i}" for i in range(count)],
            "reward_error": ["boom" if bad else None for bad in failed],
            "__num_turns__": [2] * (count - 1) + [6],
            "acc": [None if bad else score for bad, score in zip(failed, scores, strict=True)],
            "pred": [f"p{score}" for score in scores],
        }
        return DataProto.from_dict(
            tensors={
                "prompts": torch.full((count, 1), W1),
                "responses": torch.full((count, 2), W2),
                "response_mask": torch.tensor([[0, 0] if bad else [1, 1] for bad in failed]),
                "rm_scores": torch.tensor([[0.0, score or 0.0] for score in scores]),
            },
            non_tensors={key: np.array(values, dtype=object) for key, values in columns.items()},
            meta_info={"reward_extra_keys": ["acc", "pred"]},
        )


def run(tmp_path: Path, scores: list[float | None], count: int = 2) -> tuple[dict[str, float], list, Answers]:
    # Two questions with one text, two answers each.
    rows = {
        "raw_prompt": np.array([[{"role": "user", "content": "w1"}]] * 2 + [None], dtype=object)[:2],
        "data_source": np.array(["sums", "sums"], dtype=object),
        "reward_model": np.array([{"ground_truth": "1"}, {"ground_truth": "2"}], dtype=object),
        "filler": torch.zeros(2, 1),
    }
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": {"val_kwargs": {"n": 2}}},
            "trainer": {"validation_data_dir": str(tmp_path), "log_val_generations": count},
        }
    )
    answers = Answers(scores)
    metrics, table = asyncio.run(validate([rows], answers, config, TOKENIZER, version=5))
    return metrics, table, answers


def test_two_questions_with_one_text_stay_two_groups(tmp_path: Path) -> None:
    metrics, _, answers = run(tmp_path, [1.0, 1.0, 0.0, 0.0])
    assert metrics["val-core/sums/acc/mean@2"] == 0.5 and metrics["val-core/sums/acc/best@2/mean"] == 0.5
    assert metrics["val-aux/sums/reward/mean@2"] == 0.5
    assert (metrics["val-aux/num_turns/min"], metrics["val-aux/num_turns/max"]) == (2.0, 6.0)
    assert answers.seen == [{"validate": True, "global_steps": 5}]


def test_a_failed_reward_is_left_out_of_every_statistic(tmp_path: Path) -> None:
    metrics, table, _ = run(tmp_path, [1.0, None, 1.0, 1.0], count=4)
    assert metrics["val-aux/sums/reward/mean@2"] == 1.0
    assert sorted(math.isnan(score) for _, _, score in table) == [False, False, False, True]


def test_the_dump_has_every_answer_with_every_field(tmp_path: Path) -> None:
    run(tmp_path, [1.0, None, 0.25, 0.0])
    lines = [json.loads(line) for line in (tmp_path / "5.jsonl").read_text().splitlines()]
    assert [line["score"] for line in lines] == [1.0, None, 0.25, 0.0]
    assert [line["uid"] for line in lines] == ["val-0", "val-0", "val-1", "val-1"]
    assert lines[1]["reward_error"] == "boom" and lines[1]["acc"] is None
    assert lines[2] == {
        "input": "w1", "output": "w2 w2", "gts": "2", "score": 0.25, "reward": 0.25, "acc": 0.25, "pred": "p0.25",
        "uid": "val-1", "request_id": "r2", "reward_error": None, "num_turns": 2, "step": 5,
    }  # fmt: skip
