# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rollouts from disk: an agent worker generates, and what it made comes back instead."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop_parts import make_config, make_row
from scripted_client import ScriptedClient

from verl.errors import ConfigError, DataError
from verl.experimental.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.protocol.columns import object_column
from verl.utils.rollout_skip import RolloutSkip, SkipAction, read_dumped_data


class Job:
    """A worker behind `RolloutSkip`, as a trainer has it."""

    def __init__(self, model: Path, directory: Path, **skip: Any) -> None:
        stated = {"enable": True, "dump_dir": str(directory), "max_dump_step": 2, "action": "cache", **skip}
        names = {"trainer.project_name": "p", "trainer.experiment_name": "e", "data.train_batch_size": 2}
        config = make_config(model, **names, **{f"actor_rollout_ref.rollout.skip.{k}": v for k, v in stated.items()})
        self.client = ScriptedClient()
        self.worker = AgentLoopWorker(config, llm_client=self.client)
        self.skip = RolloutSkip(config, self.worker)
        self.skip.wrap_generate_sequences()

    def generate(self, step: int | None, **meta: Any) -> DataProto:
        """One step; the prompts name it."""
        prompts = questions(f"{step}+1=", **meta)
        if step is not None:
            self.skip.record(prompts, global_steps=step)
        self.prompts = prompts
        return asyncio.run(self._generate(prompts))

    async def _generate(self, prompts: DataProto) -> DataProto:
        return await self.worker.generate_sequences(prompts)

    @property
    def calls(self) -> int:
        return len(self.client.calls)


def questions(text: str, **meta: Any) -> DataProto:
    rows = [make_row(text, "x") for _ in range(2)]
    columns = {key: object_column([row[key] for row in rows]) for key in rows[0]}
    uids = np.array([f"{text}{index}" for index in range(2)], dtype=object)
    return DataProto.from_dict(non_tensors=columns | {"uid": uids}, meta_info={"global_steps": 0, **meta})


@pytest.fixture
def job(tiny_model_dir: Path, tmp_path: Path) -> Any:
    return lambda **skip: Job(tiny_model_dir, tmp_path, **skip)


def uids(batch: DataProto) -> list[str]:
    return batch.non_tensor_batch["uid"].tolist()


def test_the_first_steps_are_written_and_a_second_run_takes_them(job: Any, tmp_path: Path) -> None:
    first = job()
    made = [first.generate(step) for step in (1, 2, 3)]
    assert first.calls == 3
    assert first.skip.num_dumped_step == 2
    assert sorted(path.name for path in (tmp_path / "e_p" / "GBS2_N2_in16_out12").iterdir()) == ["1", "2"]
    second = job()
    again = [second.generate(step) for step in (1, 2)]
    assert second.calls == 0
    for one, other in zip(made, again, strict=False):
        assert one.batch.keys() == other.batch.keys()
        assert all((one.batch[key] == other.batch[key]).all() for key in one.batch.keys())  # noqa: SIM118
        assert uids(one) == uids(other)
    # Beyond what is written, it generates.
    second.generate(3)
    assert second.calls == 1 and second.skip.num_dumped_step == 2


def test_prompts_become_those_of_the_answers(job: Any) -> None:
    job().generate(1)
    later = job(action="repeat")
    answers = later.generate(5)
    assert later.calls == 0
    assert uids(later.prompts) == uids(answers) == ["1+1=0", "1+1=1"]
    assert later.prompts.non_tensor_batch["raw_prompt"][0][0]["content"] == "1+1="


@pytest.mark.parametrize(
    ("action", "taken"),
    [("repeat", ["1", "2", "1", "2"]), ("repeat_last", ["1", "2", "2", "2"]), ("cache", ["1", "2"])],
)
def test_what_a_later_step_takes(job: Any, action: str, taken: list[str]) -> None:
    first = job()
    for step in (1, 2):
        first.generate(step)
    later = job(action=action)
    found = [uids(later.generate(step))[0][0] for step in (1, 2, 3, 4)]
    assert found == taken + [str(step) for step in range(len(taken) + 1, 5)]
    assert later.calls == 4 - len(taken)


def test_validation_and_greedy_answers_are_generated(job: Any) -> None:
    run = job()
    run.generate(1)
    run.generate(1, validate=True)
    run.generate(1, do_sample=False)
    assert run.calls == 3
    assert run.skip.num_dumped_step == 1


def test_it_does_nothing_unless_it_is_enabled(job: Any, tmp_path: Path) -> None:
    run = job(enable=False)
    assert not run.skip.is_active
    run.generate(1)
    assert run.calls == 1 and list(tmp_path.iterdir()) == []


def test_steps_count_themselves_where_nobody_gives_their_number(job: Any) -> None:
    run = job()
    assert not run.skip.is_dump_step
    run.skip.step()
    assert run.skip.is_dump_step
    run.generate(None)
    assert run.skip.num_dumped_step == 1
    run.skip.record(questions("9+1="))
    run.skip.record(questions("9+1="))
    assert run.skip.current_step == 3 and not run.skip.is_dump_step
    run.skip.record(questions("9+1="), 7, gen_steps=8)
    assert run.skip.current_step == 8
    assert run.skip.try_load() == (None, None)
    new_batch, answers = run.skip.try_load(step=1)
    assert uids(new_batch) == uids(answers)
    assert uids(read_dumped_data(run.skip.dump_dir / "1")["gen_batch"]) == uids(answers)


def test_a_synchronous_caller_gets_the_batch_itself(job: Any) -> None:
    run = job()
    prompts = questions("1+1=")
    run.skip.record(prompts, 1)
    assert isinstance(run.worker.generate_sequences(prompts), DataProto)


def test_what_does_not_fit_is_refused(job: Any) -> None:
    with pytest.raises(ConfigError, match="cache, repeat, repeat_last"):
        job(action="always")
    assert [action.value for action in SkipAction] == ["cache", "repeat", "repeat_last"]
    run = job()
    run.generate(1)
    run.skip.record(questions("2+1=")[:1], 1)
    with pytest.raises(DataError, match=r"got '2 rows', expected 1"):
        run.skip.replace_curr_new_batch(run.skip.try_load()[0])


def test_a_writer_that_dies_leaves_no_step(job: Any) -> None:
    run = job()
    run.skip.step()
    (run.skip.dump_dir / ".1.new").mkdir(parents=True)
    assert run.skip.num_dumped_step == 0
    run.generate(None)
    assert [path.name for path in run.skip.dump_dir.iterdir()] == ["1"]
