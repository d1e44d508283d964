# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""When the trainer validates, and what becomes of the answers; rollouter, validation and trackers are the real ones."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from word_tokenizer import word_tokenizer

from verl.experimental.fully_async_policy.fully_async_rollouter import FullyAsyncRollouterCore
from verl.experimental.fully_async_policy.fully_async_trainer import FullyAsyncTrainerCore
from verl.protocol import DataProto
from verl.tracking import Tracking

TOKENIZER = word_tokenizer()


class Loops:
    """Stands where the agent loops stand: every answer is "w2" and worth 1."""

    async def generate_sequences(self, batch: DataProto) -> DataProto:
        count = len(batch)
        w1, w2 = TOKENIZER.encode("w1 w2", add_special_tokens=False)
        tensors = {"prompts": torch.full((count, 1), w1), "responses": torch.full((count, 1), w2)}
        tensors |= {"response_mask": torch.ones(count, 1), "rm_scores": torch.ones(count, 1)}
        columns = {"request_id": [f"r{i}" for i in range(count)], "__num_turns__": [2] * count}
        return DataProto.from_dict(tensors, {key: np.array(values, dtype=object) for key, values in columns.items()})


def parts(out: Path, **trainer: Any) -> FullyAsyncTrainerCore:
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": {"val_kwargs": {"n": 1}}},
            "trainer": {"validation_data_dir": str(out / "validation"), "log_val_generations": 2, "test_freq": 2}
            | trainer,
        }
    )
    # As the job hands it to its actors.
    OmegaConf.set_struct(config, True)
    OmegaConf.set_readonly(config, True)
    rows = {
        "raw_prompt": np.array([[{"role": "user", "content": f"w{i}"}] for i in range(3)] + [None], dtype=object)[:3],
        "data_source": np.array(["sums"] * 3, dtype=object),
        "reward_model": np.array([{"ground_truth": "1"}] * 3, dtype=object),
        "filler": torch.zeros(3, 1),
    }
    rollouter = FullyAsyncRollouterCore.__new__(FullyAsyncRollouterCore)
    rollouter.config, rollouter.tokenizer, rollouter.agent_loops = config, TOKENIZER, Loops()
    rollouter.val_loader = [rows]
    trainer_core = FullyAsyncTrainerCore.__new__(FullyAsyncTrainerCore)
    trainer_core.config = config
    # Ray's handle: `rollouter.do_validate.remote(version)`.
    trainer_core.rollouter = SimpleNamespace(do_validate=SimpleNamespace(remote=rollouter.do_validate))
    run = {"trainer": {"default_local_dir": str(out)}}
    trainer_core.tracking = Tracking("project", "run", ["tensorboard"], run)
    return trainer_core


def test_answers_of_a_validation_are_dumped_and_shown_in_the_trackers(tmp_path: Path) -> None:
    trainer = parts(tmp_path)
    metrics = asyncio.run(trainer.maybe_run(2))
    trainer.tracking.close()
    assert metrics["val-core/sums/reward/mean@1"] == 1.0 and metrics["rollouter/validate_time"] > 0
    lines = [json.loads(line) for line in (tmp_path / "validation" / "2.jsonl").read_text().splitlines()]
    assert [(line["output"], line["score"], line["step"]) for line in lines] == [("w2", 1.0, 2)] * 3
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    (tag,) = events.Tags()["tensors"]
    (event,) = events.Tensors(tag)
    assert event.step == 2 and event.tensor_proto.string_val[0].count(b"w2") == 2, "as many as were asked for"


def test_a_version_is_validated_when_it_is_due_and_at_the_end_once(tmp_path: Path) -> None:
    def validated(trainer: FullyAsyncTrainerCore, last: int) -> list[int]:
        async def scenario() -> list[int]:
            versions = [version for version in range(last + 1) if await trainer.maybe_run(version)]
            return versions + ([last] if await trainer.maybe_run(last, final=True) else [])

        return asyncio.run(scenario())

    assert validated(parts(tmp_path / "even"), last=4) == [2, 4]
    assert validated(parts(tmp_path / "odd"), last=5) == [2, 4, 5]
    assert validated(parts(tmp_path / "never", test_freq=-1), last=4) == []
