# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A real vLLM engine in a real Ray actor: tokens, versions, pause, limits, control while saturated."""

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import pytest

from verl.errors import ConfigError, DataError

PROMPT = [3, 4, 5, 6]


def ask(replica: Any, prompt: list[int] = PROMPT, request_id: str = "r", **params: Any) -> Any:
    return asyncio.run(replica.call("generate", prompt, {"logprobs": True, **params}, request_id))


def test_tokens_come_with_the_log_probs_of_the_model(replica: Any, model_config: Any) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    output = ask(replica, temperature=0.7, max_tokens=24, ignore_eos=True)
    assert len(output.token_ids) == len(output.log_probs) == 24
    model = AutoModelForCausalLM.from_pretrained(model_config.path, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + output.token_ids])).logits[0, len(PROMPT) - 1 : -1] / 0.7
    expected = torch.log_softmax(logits, -1).gather(-1, torch.tensor(output.token_ids)[:, None])[:, 0]
    np.testing.assert_allclose(output.log_probs, expected.numpy(), atol=2e-5)


def test_the_end_token_ends_an_answer_and_is_part_of_it(replica: Any, model_config: Any) -> None:
    from transformers import AutoConfig

    eos = AutoConfig.from_pretrained(model_config.path).eos_token_id
    outputs = asyncio.run(
        replica.call(
            "generate_many",
            [
                {
                    "prompt_ids": PROMPT,
                    "sampling_params": {"temperature": 1.0, "max_tokens": 120},
                    "request_id": f"e{i}",
                }
                for i in range(48)
            ],
        )
    )
    ended = [output for output in outputs if output.extra_fields["finish_reason"] == "stop"]
    assert ended, "some of 48 random answers must meet the end token within 120 of 258 tokens"
    for output in ended:
        assert output.token_ids[-1] == eos
        assert eos not in output.token_ids[:-1]
        assert output.stop_reason == "completed"
        assert output.log_probs is None, "none were asked for"


def test_seeds_repeat_and_answers_without_seed_differ(replica: Any) -> None:
    first, again = (ask(replica, temperature=1.0, max_tokens=16, seed=11, ignore_eos=True) for _ in range(2))
    assert first.token_ids == again.token_ids
    free = {tuple(ask(replica, temperature=1.0, max_tokens=16, ignore_eos=True).token_ids) for _ in range(4)}
    assert len(free) == 4


@pytest.mark.parametrize(
    ("prompt_tokens", "params", "expected"),
    [
        (4, {}, 128),  # response_length
        (100, {}, 60),  # prompt_length + response_length - prompt
        (200, {"max_tokens": 100}, 56),  # max_model_len - prompt
        (4, {"max_new_tokens": 3}, 3),
        (256, {"max_tokens": 5}, 0),  # no room is an empty answer
    ],
)
def test_the_limits_of_an_answer(replica: Any, prompt_tokens: int, params: dict[str, Any], expected: int) -> None:
    output = ask(replica, [3] * prompt_tokens, temperature=1.0, ignore_eos=True, **params)
    assert len(output.token_ids) == len(output.log_probs) == expected
    assert (output.stop_reason, output.extra_fields["finish_reason"]) == ("completed", "length")


def test_a_prompt_that_does_not_fit_is_a_data_error(replica: Any) -> None:
    with pytest.raises(DataError, match=r"257 tokens.*max_model_len = 256"):
        ask(replica, [3] * 257)


@pytest.mark.parametrize(
    ("params", "where"), [({"n": 2}, "sampling_params.n"), ({"stop": ["x"]}, "sampling_params.stop")]
)
def test_what_a_request_cannot_ask_for_is_refused(replica: Any, params: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        ask(replica, **params)


def test_a_pause_returns_what_there_is_and_resuming_stamps_the_new_version(replica: Any) -> None:
    async def scenario() -> tuple[Any, dict[str, Any], Any, bool]:
        requests = [
            {"prompt_ids": PROMPT, "sampling_params": {"logprobs": True, "ignore_eos": True}, "request_id": f"p{i}"}
            for i in range(16)
        ]
        running = asyncio.ensure_future(replica.call("generate_many", requests))
        await in_flight(replica, 16)
        paused = await replica.abort_all_requests()
        interrupted = await running
        await replica.set_global_steps(7)
        later = asyncio.ensure_future(replica.call("generate", PROMPT, {"max_tokens": 4}, "later"))
        await asyncio.sleep(0.2)
        waited = not later.done()
        await replica.resume_generation()
        output = await later
        await replica.set_global_steps(0)
        return interrupted, paused, output, waited

    interrupted, paused, later, waited = asyncio.run(scenario())
    assert paused["aborted_count"] == 16
    assert all(output.stop_reason == "aborted" for output in interrupted)
    assert all(len(output.token_ids) == len(output.log_probs) < 128 for output in interrupted)
    assert {output.extra_fields["global_steps"] for output in interrupted} == {0}
    assert waited, "a paused server must not answer"
    assert later.extra_fields["global_steps"] == 7


def test_one_request_can_be_aborted(replica: Any) -> None:
    async def scenario() -> tuple[Any, Any]:
        running = asyncio.ensure_future(replica.call("generate", PROMPT, {"ignore_eos": True}, "one"))
        await in_flight(replica, 1)
        aborted = await replica.abort_request("one")
        return aborted, await running

    aborted, output = asyncio.run(scenario())
    assert aborted == {"aborted": True, "request_id": "one"}
    assert output.stop_reason == "aborted"
    assert asyncio.run(replica.abort_request("gone")) == {"aborted": False, "request_id": "gone"}


def test_control_calls_get_through_to_a_saturated_server(replica: Any) -> None:
    assert replica.max_concurrency >= 64 + 16

    async def scenario() -> list[Any]:
        slots = [
            asyncio.ensure_future(replica.call("generate", PROMPT, {"ignore_eos": True}, f"s{i}")) for i in range(64)
        ]
        await in_flight(replica, 64)
        await replica.abort_all_requests()
        outputs = await asyncio.gather(*slots)
        await replica.resume_generation()
        return outputs

    outputs = asyncio.run(scenario())
    assert {output.stop_reason for output in outputs} == {"aborted"}, "the pause came after the answers"


@pytest.mark.parametrize(("max_num_seqs", "least"), [(2000, 2016), (64, 1000), (None, 1000)])
def test_concurrency_of_the_actor_covers_the_slots_and_control(
    rollout_config: Any, model_config: Any, max_num_seqs: int | None, least: int
) -> None:
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

    assert vLLMReplica(0, rollout_config(max_num_seqs=max_num_seqs), model_config).max_concurrency == least


def test_health_over_http_and_by_call_agree(replica: Any) -> None:
    with urllib.request.urlopen(f"http://{replica.server_address}/health", timeout=10) as response:
        over_http = json.load(response)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://{replica.server_address}/v1/models", timeout=10)
    assert "skip_tokenizer_init=false" in caught.value.read().decode()
    assert over_http == asyncio.run(replica.health())
    assert over_http["status"] == "ok"
    assert len(over_http["engine_pids"]) == 1, "one worker on CPU lives inside the engine's process"


async def in_flight(replica: Any, count: int) -> None:
    """Until the server has `count` requests."""
    async with asyncio.timeout(30):
        while (await replica.health())["in_flight"] < count:
            await asyncio.sleep(0.005)
