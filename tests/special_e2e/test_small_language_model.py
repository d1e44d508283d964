# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A real small language model (BPE, chat template, grouped-query attention, bf16) through the whole system."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.special_e2e.job import Job
from tools.demo import overrides, prepare
from verl.config.front_door import verl_home

pytestmark = pytest.mark.timeout(900)

QUESTIONS = [
    "What is the capital of France?",
    "Name three colours of the rainbow.",
    "Write a sentence about the sea.",
    "Is 17 a prime number?",
]
# Something that differs among four answers.
REWARD = """def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return solution_str.count("e") / 10
"""
MAX_NEW_TOKENS = 32


@pytest.fixture(scope="module")
def model() -> Path:
    return prepare(verl_home())


def write_questions(path: Path) -> Path:
    rows = [
        {
            "data_source": "questions",
            "prompt": [{"role": "user", "content": text}],
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": index},
        }
        for index, text in enumerate(QUESTIONS)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def finished(model: Path, tmp_path: Path) -> Iterator[Job]:
    """Two GRPO steps, a validation by the server that took two weight updates, and the checkpoint beside it."""
    rows = write_questions(tmp_path / "questions.parquet")
    (tmp_path / "reward.py").write_text(REWARD)
    job = Job(
        tmp_path / "run",
        [
            *overrides(model, rows, rows),
            f"trainer.validation_data_dir={tmp_path}/validation",
            f"reward.custom_reward_function.path={tmp_path}/reward.py",
            # High enough for two steps to change what is said.
            "actor_rollout_ref.actor.optim.lr=5e-5",
            "actor_rollout_ref.actor.optim.lr_warmup_steps=0",
            "actor_rollout_ref.actor.checkpoint.save_contents=[model,hf_model]",
            "actor_rollout_ref.rollout.val_kwargs.temperature=0",
            # In bf16 two nearly equal logits may change places with the company in a batch: each answer alone.
            *("actor_rollout_ref.rollout.max_num_seqs=1", "actor_rollout_ref.rollout.enable_prefix_caching=False"),
            *("trainer.val_before_train=True", "trainer.test_freq=2", "trainer.save_freq=2"),
        ],
        tmp_path,
    )
    yield job
    job.end()


def fresh_answers(directory: Path) -> dict[str, str]:
    """Greedy answers of an engine that is started from a saved model."""
    from transformers import AutoTokenizer
    from vllm import AsyncEngineArgs, SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

    tokenizer = AutoTokenizer.from_pretrained(directory)

    async def answer(engine: Any, question: str) -> str:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
        )
        params = SamplingParams(max_tokens=MAX_NEW_TOKENS, temperature=0, detokenize=False)
        async for output in engine.generate({"prompt_token_ids": ids}, params, request_id=question):
            final = output
        return tokenizer.decode(final.outputs[0].token_ids, skip_special_tokens=True)

    async def answers() -> list[str]:
        arguments = AsyncEngineArgs(
            model=str(directory),
            skip_tokenizer_init=True,
            max_model_len=96,
            enforce_eager=True,
            dtype="bfloat16",
            max_num_seqs=1,
            enable_prefix_caching=False,
            disable_log_stats=True,
            kv_cache_memory_bytes=64 << 20,
            distributed_executor_backend="uni",
        )
        engine = AsyncLLM.from_vllm_config(arguments.create_engine_config(), disable_log_stats=True)
        try:
            return [await answer(engine, question) for question in QUESTIONS]
        finally:
            engine.shutdown()

    return dict(zip(QUESTIONS, asyncio.run(answers()), strict=True))


def served_answers(path: Path) -> dict[str, str]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {next(text for text in QUESTIONS if text in record["input"]): record["output"] for record in records}


def test_after_two_updates_the_server_says_what_an_engine_started_from_the_checkpoint_says(
    finished: Job, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = finished
    assert job.wait(600) == 0, job.text()[-3000:]
    assert [record["step"] for record in job.metrics() if "actor/pg_loss" in record["data"]] == [1, 2]
    assert all(record["data"]["actor/grad_norm"] > 0 for record in job.metrics() if "actor/grad_norm" in record["data"])

    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
    validation = job.out.parent / "validation"
    before, after = served_answers(validation / "0.jsonl"), served_answers(validation / "2.jsonl")
    assert before == fresh_answers(model)
    assert after == fresh_answers(job.out / "global_step_2" / "actor" / "huggingface")
    assert after != before, "two steps must change an answer, or the test shows nothing"
