# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rollout by transformers: tokens and log-probs of the model, rows of different kinds, pause, weights."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from verl.errors import UnsupportedError
from verl.protocol import DataProto
from verl.workers.rollout import hf_generation
from verl.workers.rollout.hf_generation import Row
from verl.workers.rollout.hf_rollout import HFReplica, HFRollout, HFServer

PROMPT = [3, 4, 5, 6]


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32).eval()


def log_probs_of(model: PreTrainedModel, prompt: list[int], tokens: list[int], temperature: float) -> np.ndarray:
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits, -1).gather(-1, torch.tensor(tokens)[:, None])[:, 0].numpy()


def test_rows_of_different_lengths_share_a_batch(model: PreTrainedModel) -> None:
    params = {"temperature": 0.7, "ignore_eos": True, "top_k": -1, "top_p": 1.0}
    rows = [Row([3] * size, params, budget) for size, budget in ((2, 5), (9, 1), (4, 17))]
    hf_generation.answer(model, rows, [1])
    assert [len(row.token_ids) for row in rows] == [5, 1, 17]
    assert {row.finish_reason for row in rows} == {"length"}
    for row in rows:
        np.testing.assert_allclose(row.log_probs, log_probs_of(model, row.prompt_ids, row.token_ids, 0.7), atol=2e-5)


def test_the_end_token_ends_a_row_and_is_part_of_it(model: PreTrainedModel) -> None:
    params = {"temperature": 1.0}
    rows = [Row(PROMPT, params, 60) for _ in range(48)]
    hf_generation.answer(model, rows, [1, 2, 7])
    ended = [row for row in rows if row.finish_reason == "stop"]
    assert ended
    for row in ended:
        assert row.token_ids[-1] in (1, 2, 7)
        assert not {1, 2, 7} & set(row.token_ids[:-1])
        assert len(row.log_probs) == len(row.token_ids)


def test_greedy_and_seeds_repeat(model: PreTrainedModel) -> None:
    def once(**params: Any) -> list[int]:
        row = Row(PROMPT, {"ignore_eos": True, **params}, 12)
        hf_generation.answer(model, [row], [1])
        return row.token_ids

    assert once(temperature=0) == once(temperature=0)
    assert once(temperature=1.0, seed=3) == once(temperature=1.0, seed=3)
    assert once(temperature=1.0, seed=3) != once(temperature=1.0, seed=4)
    state = torch.get_rng_state()
    once(temperature=1.0, seed=3)
    assert torch.equal(state, torch.get_rng_state()), "a seeded request must not disturb the others"


def test_rows_with_seeds_have_batches_of_their_own() -> None:
    free, also = Row(PROMPT, {"temperature": 1.0}, 3), Row([4], {"temperature": 1.0, "logprobs": True}, 9)
    assert free.kind == also.kind
    assert Row(PROMPT, {"temperature": 0.5}, 3).kind != free.kind
    assert Row(PROMPT, {"temperature": 1.0, "seed": 1}, 3).kind != Row(PROMPT, {"temperature": 1.0, "seed": 1}, 3).kind


def test_a_parameter_without_effect_is_refused(model: PreTrainedModel) -> None:
    with pytest.raises(UnsupportedError, match="min_tokens"):
        hf_generation.answer(model, [Row(PROMPT, {"min_tokens": 3}, 4)], [1])


def test_in_process_rollout_pads_right_and_masks(model: PreTrainedModel, rollout_config: Any) -> None:
    rollout = HFRollout(model, rollout_config(response_length=8, ignore_eos=True))
    prompts = DataProto.from_dict(
        {
            "input_ids": torch.tensor([[0, 0, 3, 4], [3, 4, 5, 6]]),
            "attention_mask": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]),
        },
        meta_info={"do_sample": False},
    )
    output = rollout.generate_sequences(prompts)
    assert output.batch["responses"].shape == (2, 8)
    assert output.batch["position_ids"][0].tolist() == [0, 0, 0, 1, *range(2, 10)]
    first = model.generate(torch.tensor([[3, 4]]), max_new_tokens=8, do_sample=False, eos_token_id=None)
    assert output.batch["responses"][0].tolist() == first[0, 2:].tolist()
    assert bool((output.batch["rollout_log_probs"] < 0).all())


@pytest.fixture
def server(tiny_model_dir: Path, rollout_config: Any, job_env: Path) -> Iterator[HFServer]:
    yield HFServer(rollout_config(name="hf", max_num_seqs=8), {"path": str(tiny_model_dir)}, replica_rank=40)


def test_the_server_answers_pauses_and_takes_new_weights(
    server: HFServer, model: PreTrainedModel, tmp_path: Path
) -> None:
    from verl.quickstart.model import build_model
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

    other = build_model(seed=1)
    greedy = {"temperature": 0.0, "ignore_eos": True, "max_tokens": 10}

    async def scenario() -> dict[str, Any]:
        await server.launch_server()
        seen: dict[str, Any] = {"before": await server.generate(PROMPT, greedy, "g")}
        running = asyncio.ensure_future(
            server.generate_many(
                [
                    {
                        "prompt_ids": PROMPT,
                        "sampling_params": {"temperature": 1.0, "logprobs": True, "ignore_eos": True},
                        "request_id": f"r{i}",
                    }
                    for i in range(12)
                ]
            )
        )
        async with asyncio.timeout(30):
            while (await server.health())["in_flight"] < 12:
                await asyncio.sleep(0.005)
        (answer,) = await server.begin_weight_update(3, True, 30.0)
        sender = BucketedWeightSender(answer["handle"], 8, True, version=3, deadline_s=30.0)
        await sender.async_send_weights(iter(other.named_parameters()))
        await server.abort_all_requests()
        seen["interrupted"] = await running
        seen["stats"] = await server.apply_weight_update(3)
        await server.resume_generation()
        seen["after"] = await server.generate(PROMPT, greedy, "g")
        seen["health"] = await server.health()
        await server.shutdown()
        return seen

    seen = asyncio.run(scenario())
    ids, config = torch.tensor([PROMPT]), {"max_new_tokens": 10, "do_sample": False, "eos_token_id": None}
    assert seen["before"].token_ids == model.generate(ids, **config)[0, 4:].tolist()
    assert seen["after"].token_ids == other.generate(ids, **config)[0, 4:].tolist()
    assert [seen[key].extra_fields["global_steps"] for key in ("before", "after")] == [0, 3]
    assert seen["stats"]["version"] == seen["health"]["version"] == 3
    reasons = {output.stop_reason for output in seen["interrupted"]}
    assert "aborted" in reasons
    assert all(len(output.token_ids) == len(output.log_probs) for output in seen["interrupted"])


def test_more_than_one_device_is_refused(rollout_config: Any, model_config: Any) -> None:
    replica = HFReplica(0, rollout_config(name="hf", tensor_model_parallel_size=2), model_config)
    with pytest.raises(UnsupportedError, match="one device"):
        asyncio.run(replica.launch_servers())
