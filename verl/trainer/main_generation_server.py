# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Answers a file of prompts with the rollout servers: the same rows, and a column of answers beside them.

python -m verl.trainer.main_generation_server data.train_files=prompts.parquet +data.output_path=answers.parquet \
    actor_rollout_ref.model.path=… actor_rollout_ref.rollout.n=4
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray

from verl.checkpoint_engine.worker import CheckpointEngineWorker
from verl.config import RunConfig
from verl.config.async_training import RolloutPoolConfig
from verl.config.front_door import run_main
from verl.errors import ConfigError, DataError
from verl.trainer.job import run_job
from verl.trainer.main_ppo import RUNNER_THREADS
from verl.trainer.ppo.setup import replace_at
from verl.utils.chat_template import render_prompt
from verl.utils.dataset.files import read_rows, require_column, resolve_data_files
from verl.utils.logging_utils import set_up_logging
from verl.utils.tokenizer import load_tokenizer_and_processor
from verl.workers.rollout.llm_server import LLMServerManager
from verl.workers.rollout.replica import set_standalone_worker_cls
from verl.workers.rollout.sampling import sampling_params

RESPONSES = "responses"
# Prompts under way at once; the servers queue what they cannot batch.
IN_FLIGHT = 512


class GenerationRunner:
    """Starts the servers, sends every prompt, writes the answers when all are there."""

    def __init__(self) -> None:
        set_up_logging("runner")
        self.done = 0
        self.total = 0
        self.stopping = False

    async def run(self, config: RunConfig) -> dict[str, Any]:
        """The whole run; returns how it ended."""
        table = await asyncio.to_thread(read_prompts, config.data)
        answers = await self._answer(config, table)
        if self.stopping:
            return {"reason": f"stopped; {config.data.output_path} is not written", "version": 0}
        await asyncio.to_thread(write_answers, table, answers, Path(config.data.output_path or ""))
        return {"reason": f"{len(answers)} prompts answered into {config.data.output_path}", "version": 0}

    async def _answer(self, config: RunConfig, table: pa.Table) -> list[list[str]]:
        tokenizer, _ = await asyncio.to_thread(load_tokenizer_and_processor, config.actor_rollout_ref.model)
        prompts = await asyncio.to_thread(tokenized, table, config.data, tokenizer)
        self.total = len(prompts)
        set_standalone_worker_cls(CheckpointEngineWorker)
        servers = await LLMServerManager.create(config)
        client = servers.client(partial_rollout=False)
        rollout = config.actor_rollout_ref.rollout
        params = sampling_params(rollout) | {"logprobs": False}
        slots = asyncio.Semaphore(IN_FLIGHT)

        async def group(row: int, prompt_ids: list[int]) -> list[str]:
            async with slots:
                if self.stopping:
                    return []
                outputs = await client.generate_group([(f"{row}-{n}", prompt_ids, params) for n in range(rollout.n)])
            self.done += 1
            return [str(tokenizer.decode(output.token_ids, skip_special_tokens=True)) for output in outputs]

        try:
            # The first failure ends the others.
            async with asyncio.TaskGroup() as tasks:
                groups = [tasks.create_task(group(row, ids)) for row, ids in enumerate(prompts)]
        finally:
            await servers.shutdown()
        return [task.result() for task in groups]

    async def request_stop(self) -> None:
        """Finish what is under way, and write nothing."""
        self.stopping = True

    async def status(self) -> dict[str, Any]:
        """One mapping for the progress line."""
        return {"step": self.done, "total_steps": self.total} if self.total else {"phase": "starting"}


def read_prompts(data: Any) -> pa.Table:
    """The rows of `data.train_files`, all of them or the first `data.train_max_samples`."""
    files = resolve_data_files(data.train_files, where="data.train_files")
    table = read_rows(files)
    require_column(table.column_names, data.prompt_key, files, "data.prompt_key", "the messages")
    return table if data.train_max_samples < 0 else table.slice(0, data.train_max_samples)


def tokenized(table: pa.Table, data: Any, tokenizer: Any) -> list[list[int]]:
    """Each prompt as the rollout sends it; one that is too long names its row."""
    kwargs: Mapping[str, Any] = data.get("apply_chat_template_kwargs") or {}
    prompts = []
    for row, messages in enumerate(table[data.prompt_key].to_pylist()):
        ids = render_prompt(tokenizer, None, messages, template_kwargs=kwargs)
        if len(ids) > data.max_prompt_length:
            raise DataError(
                "the prompt is too long",
                where=f"row {row}",
                got=f"{len(ids)} tokens",
                expected=f"at most data.max_prompt_length={data.max_prompt_length}",
            )
        prompts.append(ids)
    return prompts


def write_answers(table: pa.Table, answers: Sequence[Sequence[str]], path: Path) -> None:
    """The rows with the column `responses` (a list a row); the file appears when it is complete."""
    column = pa.array(answers, type=pa.list_(pa.string()))
    if RESPONSES in table.column_names:
        table = table.drop_columns([RESPONSES])
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    pq.write_table(table.append_column(RESPONSES, column), draft)
    draft.replace(path)


def for_generation(config: RunConfig) -> RunConfig:
    """The servers get the trainer's devices, and load the model's own weights."""
    path = config.data.output_path
    if not path:
        raise ConfigError(
            "no place for the answers", where="data.output_path", remedy="add +data.output_path=<file>.parquet"
        )
    trainer = config.trainer
    pool = RolloutPoolConfig(nnodes=trainer.nnodes, n_gpus_per_node=trainer.n_gpus_per_node)
    config = replace_at(config, "rollout", pool)
    config = replace_at(config, "data.output_path", str(Path(path).expanduser().absolute()))
    return replace_at(config, "actor_rollout_ref.rollout.load_format", "auto")


def run_generation(config: RunConfig) -> int:
    """Run on Ray; returns the exit code."""
    runner = ray.remote(num_cpus=0)(GenerationRunner).options(max_concurrency=RUNNER_THREADS)
    return run_job(for_generation(config), runner)


def main() -> None:
    """Console entry."""
    sys.exit(
        run_main(
            lambda config, _raw: run_generation(config),
            config_module="verl.trainer.config",
            config_name="ppo_trainer",
        )
    )


if __name__ == "__main__":
    main()
