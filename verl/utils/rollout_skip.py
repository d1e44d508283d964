# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rollouts from disk: while the rest of a step is developed, generation is done once and its batches are used again.

`rollout.skip.dump_dir` holds a directory for each experiment, batch size and length, and in it one for each step with
the prompts (`new_batch`) and their answers (`gen_batch`). The answers come from the weights of the run that wrote them.
"""

import inspect
import json
import logging
import shutil
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from verl.errors import ConfigError, DataError
from verl.protocol import DataProto
from verl.utils.ray_utils import auto_await

__all__ = ["RolloutSkip", "SkipAction", "read_dumped_data", "wrap_generate_sequences"]

logger = logging.getLogger(__name__)

_NEW, _GENERATED, _META = "new_batch", "gen_batch", "meta.json"


class SkipAction(Enum):
    """What a step without a batch of its own on disk does."""

    CACHE = "cache"
    """It generates."""
    REPEAT = "repeat"
    """It takes the batches that there are in turn; generates where there are none."""
    REPEAT_LAST = "repeat_last"
    """It takes the last batch that there is; generates where there is none."""


class RolloutSkip:
    """Puts batches from disk in the place of `rollout_wg.generate_sequences`, and writes those of the first steps.

    `config` is a whole configuration. A step begins with `record` (or `step`, where the caller does not keep its
    prompts); validation and greedy answers always generate.
    """

    def __init__(self, config: Any, rollout_wg: Any) -> None:
        rollout = config.actor_rollout_ref.rollout
        skip = rollout.skip
        self.rollout_wg = rollout_wg
        self.enabled = bool(skip.get("enable", False))
        self.max_dump_step = int(skip.get("max_dump_step", 1))
        try:
            self.action = SkipAction(skip.get("action", "cache"))
        except ValueError as error:
            known = ", ".join(action.value for action in SkipAction)
            raise ConfigError("unknown action", where="rollout.skip.action", got=skip.action, expected=known) from error
        size = config.data.get("gen_batch_size", None) or config.data.train_batch_size
        self.dump_dir = (
            Path(skip.get("dump_dir", None) or "~/.verl/rollout_dump").expanduser().absolute()
            / f"{config.trainer.experiment_name}_{config.trainer.project_name}"
            / f"GBS{size}_N{rollout.n}_in{rollout.prompt_length}_out{rollout.response_length}"
        )
        self.current_step = 0
        self.new_batch: DataProto | None = None

    @property
    def is_active(self) -> bool:
        """Whether `rollout.skip.enable` is set."""
        return self.enabled

    @property
    def is_dump_step(self) -> bool:
        """Whether the batch of this step is to be written: one of the first `max_dump_step`."""
        return self.is_active and 1 <= self.current_step <= self.max_dump_step

    @property
    def num_dumped_step(self) -> int:
        """Number of steps on disk."""
        return len(self._dumped_steps())

    def step(self) -> None:
        """The next step begins."""
        self.current_step += 1
        self.new_batch = None

    def record(
        self,
        new_batch: DataProto,
        global_steps: int | None = None,
        gen_steps: int | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """The step of these prompts begins: number `gen_steps`, else `global_steps`, else the next."""
        number = gen_steps if gen_steps is not None else global_steps
        self.current_step = self.current_step + 1 if number is None else int(number)
        self.new_batch = new_batch

    def wrap_generate_sequences(self) -> None:
        """From now on `rollout_wg.generate_sequences` looks on disk first."""
        if self.is_active:
            self.rollout_wg.generate_sequences = wrap_generate_sequences(self, self.rollout_wg)

    def try_load(self, step: int | None = None) -> tuple[DataProto | None, DataProto | None]:
        """Prompts and answers on disk for a step (null: the current one), as `action` chooses; twice null: none."""
        chosen = self._source_of(self.current_step if step is None else step)
        if chosen is None:
            return None, None
        found = read_dumped_data(self.dump_dir / str(chosen))
        logger.info("step %d takes its rollout from %s", self.current_step, self.dump_dir / str(chosen))
        return found[_NEW], found[_GENERATED]

    def dump(self, outputs: DataProto) -> None:
        """Write the answers of this step, with its prompts; whole or not at all."""
        target = self.dump_dir / str(self.current_step)
        unfinished = target.with_name(f".{target.name}.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        # Where the caller keeps no prompts, the answers hold all there is.
        (outputs if self.new_batch is None else self.new_batch).save_to_disk(unfinished / _NEW)
        outputs.save_to_disk(unfinished / _GENERATED)
        meta = {"step": self.current_step, "rows": len(outputs)}
        (unfinished / _META).write_text(json.dumps(meta), encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)

    def replace_curr_new_batch(self, dumped_new_batch: DataProto) -> None:
        """Make the recorded prompts those of the answers from disk, in place."""
        if self.new_batch is None:
            return
        if len(self.new_batch) != len(dumped_new_batch):
            raise DataError(
                "the prompts on disk are not as many as those of this step",
                where=str(self.dump_dir),
                got=f"{len(dumped_new_batch)} rows",
                expected=f"{len(self.new_batch)}",
                remedy="remove the directory, or set rollout.skip.dump_dir",
            )
        self.new_batch.batch = dumped_new_batch.batch
        self.new_batch.non_tensor_batch = dumped_new_batch.non_tensor_batch
        self.new_batch.meta_info = dumped_new_batch.meta_info

    def _dumped_steps(self) -> list[int]:
        if not self.dump_dir.is_dir():
            return []
        return sorted(int(path.name) for path in self.dump_dir.iterdir() if path.name.isdigit())

    def _source_of(self, step: int) -> int | None:
        dumped = self._dumped_steps()
        if step in dumped:
            return step
        if not dumped or self.action is SkipAction.CACHE or step <= self.max_dump_step:
            return None
        return dumped[-1] if self.action is SkipAction.REPEAT_LAST else dumped[(step - 1) % len(dumped)]


def wrap_generate_sequences(rolloutskip: RolloutSkip, rollout_wg: Any) -> Callable[..., Any]:
    """`rollout_wg.generate_sequences` behind the disk; inside an event loop it is awaited, as the original is."""
    generate = rollout_wg.generate_sequences

    @auto_await
    async def generate_or_load(batch: DataProto, *args: Any, **kwargs: Any) -> DataProto:
        trains = batch.meta_info.get("do_sample", True) and not batch.meta_info.get("validate", False)
        if trains:
            new_batch, answers = rolloutskip.try_load()
            if new_batch is not None and answers is not None:
                rolloutskip.replace_curr_new_batch(new_batch)
                return answers
        made = generate(batch, *args, **kwargs)
        outputs = await made if inspect.isawaitable(made) else made
        if trains and rolloutskip.is_dump_step:
            rolloutskip.dump(outputs)
        return outputs

    return generate_or_load


def read_dumped_data(path_dump: Path | str) -> dict[str, DataProto]:
    """`new_batch` and `gen_batch` of one step's directory."""
    return {name: DataProto.load_from_disk(Path(path_dump) / name) for name in (_NEW, _GENERATED)}
