# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The record of a step: filling rows count nowhere, failed rewards are shown and not averaged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from word_tokenizer import word_tokenizer

from verl.protocol import DataProto
from verl.trainer.ppo.batch_source import pad_with_masked_rows
from verl.trainer.ppo.metric_aggregator import OneStep
from verl.trainer.ppo.recorder import StepRecorder

TOKENIZER = word_tokenizer()
ROWS = 3


class Tracker:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.records: list[tuple[int, dict]] = []

    def log(self, data: dict, step: int) -> None:
        self.records.append((step, data))


def batch() -> DataProto:
    ids = torch.tensor(TOKENIZER.encode("w1 w2 w3 w4 w5 w6 w7 w8 w9", add_special_tokens=False)).reshape(ROWS, 3)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 0]])
    scores = torch.tensor([[0.0, 0.0, 1.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    tensors = {"prompts": ids, "responses": ids.clone(), "response_mask": mask, "rm_scores": scores.clone()}
    tensors |= {"attention_mask": torch.tensor([[1] * 6, [1] * 5 + [0], [1] * 6])}
    tensors |= {"token_versions": torch.where(mask.bool(), 4, -1)}
    columns = {
        "uid": ["a", "a", "b"],
        "request_id": ["r0", "r1", "r2"],
        "reward_error": [None, None, "boom"],
        "reward_model": [{"ground_truth": "x"}] * ROWS,
        "__num_turns__": [2, 4, 2],
        "acc": [1.0, 0.0, None],
    }
    non_tensors = {key: np.array(values, dtype=object) for key, values in columns.items()}
    return DataProto.from_dict(
        tensors=tensors, non_tensors=non_tensors, meta_info={"reward_extra_keys": ["acc"], "temperature": 1.0}
    )


def trained(data: DataProto) -> DataProto:
    """What the steps add."""
    for name in ("token_level_scores", "token_level_rewards"):
        data.batch[name] = data.batch["rm_scores"]
    data.batch["advantages"] = data.batch["returns"] = data.batch["response_mask"].float()
    data.meta_info["global_token_num"] = data.batch["attention_mask"].sum(-1).tolist()
    return data


def record_of(
    data: DataProto, directory: Path, metrics: dict[str, float] | None = None, **algorithm: Any
) -> dict[str, float]:
    options = {"trainer": {"rollout_data_dir": str(directory)}, "algorithm": {"adv_estimator": "grpo"} | algorithm}
    tracker, config = Tracker(), OmegaConf.create(options)
    recorder = StepRecorder(config, tracker, OneStep(), num_devices=1, use_critic=False, tokenizer=TOKENIZER)
    recorder.step(7, trained(data), {"reward/num_errors": 1.0, **(metrics or {})}, {"step": 2.0, "gen": 1.0})
    recorder.publish(3, {})
    ((_, record),) = tracker.records
    return record


def test_rows_that_fill_up_the_batch_change_no_number_and_no_dump(tmp_path: Path) -> None:
    plain = record_of(batch(), tmp_path / "plain")
    padded = record_of(pad_with_masked_rows(batch(), multiple=8), tmp_path / "padded")
    assert padded == pytest.approx(plain)
    assert plain["perf/total_num_tokens"] == 17 and plain["num_turns/mean"] == pytest.approx(8 / 3)
    files = [(tmp_path / name / "7.jsonl").read_text() for name in ("plain", "padded")]
    assert files[0] == files[1]


def test_the_noise_of_the_gradient_is_estimated_where_the_batch_allows_it(tmp_path: Path) -> None:
    assert not any(name.startswith("variance_proxy/") for name in record_of(batch(), tmp_path))
    data = batch()
    data.batch["old_log_probs"] = torch.full(data.batch["response_mask"].shape, 0.5).log()
    data.batch["sum_pi_squared"] = torch.full_like(data.batch["old_log_probs"], 0.5)
    record = record_of(data, tmp_path, {"actor/grad_norm": 0.5})
    # 1 - 2 * 0.5 + 0.5 a token, and an advantage of 1 everywhere.
    lengths = data.batch["response_mask"].sum(-1).double()
    assert record["variance_proxy/expected_w"] == pytest.approx(0.5 * lengths[lengths > 0].mean().item())
    assert record["variance_proxy/proxy1_signal_strength"] == 0.25


def test_a_failed_reward_is_dumped_with_its_reason_and_enters_no_mean(tmp_path: Path) -> None:
    record = record_of(batch(), tmp_path)
    assert record["critic/score/mean"] == record["critic/rewards/mean"] == 2.0 and record["critic/score/min"] == 1.0
    lines = [json.loads(line) for line in (tmp_path / "7.jsonl").read_text().splitlines()]
    assert [line["score"] for line in lines] == [1.0, 3.0, None]
    assert [line["reward_error"] for line in lines] == [None, None, "boom"]
    assert lines[0] == {
        "input": "w1 w2 w3", "output": "w1 w2 w3", "gts": "x", "score": 1.0, "uid": "a", "request_id": "r0",
        "reward_error": None, "__num_turns__": 2, "acc": 1.0, "versions": [4], "step": 7,
    }  # fmt: skip


def test_the_separate_rewards_of_gdpo_are_recorded_without_failed_and_filling_rows(tmp_path: Path) -> None:
    padded = pad_with_masked_rows(batch(), multiple=8)
    record = record_of(padded, tmp_path, adv_estimator="gdpo", gdpo_reward_keys=["acc"])
    assert record["gdpo/acc/mean"] == 0.5 and record["gdpo/acc/max"] == 1.0
    assert not any(name.startswith("gdpo/") for name in record_of(batch(), tmp_path))
