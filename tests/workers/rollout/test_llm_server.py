# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Clients of a real server: answers that survive weight updates, groups, counts, pools."""

import asyncio
import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loop_parts import make_config, make_row
from omegaconf import OmegaConf

from verl.errors import ConfigError, DataError, UnsupportedError, WaitTimeout
from verl.protocol import DataProto
from verl.protocol.columns import object_column
from verl.workers.rollout.llm_client import LLMServerClient
from verl.workers.rollout.load_balancer import GlobalRequestLoadBalancer

PROMPT = [3, 4, 5, 6]


@pytest.fixture
def balancer(replica: Any) -> GlobalRequestLoadBalancer:
    return GlobalRequestLoadBalancer([replica.server_id])


@pytest.fixture
def make_client(replica: Any, balancer: GlobalRequestLoadBalancer) -> Any:
    def make(**options: Any) -> LLMServerClient:
        return LLMServerClient(replica.config, {replica.server_id: replica.server_handle}, balancer, **options)

    return make


async def interrupt(replica: Any, running: asyncio.Future, version: int, after: int) -> None:
    """Pause once `after` requests are in flight, publish `version`, resume."""
    async with asyncio.timeout(30):
        while (await replica.health())["in_flight"] < after:
            await asyncio.sleep(0.005)
    assert not running.done()
    await replica.abort_all_requests()
    await replica.set_global_steps(version)
    await replica.resume_generation()


def test_an_interrupted_answer_goes_on_under_the_new_version(replica: Any, make_client: Any, model_config: Any) -> None:
    from transformers import AutoModelForCausalLM

    params = {"temperature": 1.0, "logprobs": True, "ignore_eos": True, "seed": 5}
    before = copy.deepcopy(params)

    async def scenario() -> Any:
        running = asyncio.ensure_future(make_client().generate("t", prompt_ids=PROMPT, sampling_params=params))
        await interrupt(replica, running, version=3, after=1)
        output = await running
        await replica.set_global_steps(0)
        return output

    output = asyncio.run(scenario())
    assert params == before
    assert len(output.token_ids) == len(output.log_probs) == 128, "the budget of all pieces together"
    assert output.stop_reason == "completed"
    versions = output.extra_fields["token_versions"]
    assert len(versions) == 128
    assert versions == sorted(versions)
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (versions[0], 3)
    model = AutoModelForCausalLM.from_pretrained(model_config.path, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + output.token_ids])).logits[0, len(PROMPT) - 1 : -1]
    expected = torch.log_softmax(logits, -1).gather(-1, torch.tensor(output.token_ids)[:, None])[:, 0]
    np.testing.assert_allclose(output.log_probs, expected.numpy(), atol=2e-5)


def test_the_client_answers_under_its_old_name_and_arguments(replica: Any, balancer: Any, make_client: Any) -> None:
    from verl.experimental.agent_loop import AsyncLLMServerManager

    config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"prompt_length": 16, "response_length": 8}}})
    servers = [(replica.server_id, replica.server_handle)]
    client = AsyncLLMServerManager(config=config, servers=servers, load_balancer_handle=balancer)
    params = {"temperature": 0.0, "max_tokens": 4}
    old = asyncio.run(client.generate(request_id="t", prompt_ids=PROMPT, sampling_params=params))
    new = asyncio.run(make_client().generate("t", prompt_ids=PROMPT, sampling_params=params))
    assert old.token_ids == new.token_ids


def test_an_agent_worker_takes_servers_and_their_balancer_as_recipes_give_them(
    replica: Any, balancer: GlobalRequestLoadBalancer, tiny_model_dir: Path
) -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker, AgentLoopWorkerBase

    assert AgentLoopWorkerBase is AgentLoopWorker
    servers = [(replica.server_id, replica.server_handle)]
    worker = AgentLoopWorker(make_config(tiny_model_dir), servers, balancer)
    rows = [make_row(question, "x") for question in ("1+2=", "12+34=")]
    columns = {key: object_column([row[key] for row in rows for _ in range(2)]) for key in rows[0]}
    batch = DataProto.from_dict(
        non_tensors=columns | {"uid": np.array(["a", "a", "b", "b"], dtype=object)},
        meta_info={"validate": True, "global_steps": 0},
    )
    answers = asyncio.run(worker.generate_sequences(batch))
    assert answers.batch["prompts"].shape == (4, 16)
    assert answers.batch["responses"].shape == (4, 12)
    assert answers.non_tensor_batch["uid"].tolist() == ["a", "a", "b", "b"]
    # Greedy, as validation is: the rows of one prompt agree, and the balancer has nothing left to wait for.
    assert torch.equal(answers.batch["responses"][0], answers.batch["responses"][1])
    assert balancer.in_flight() == {replica.server_id: 0}


def test_an_agent_worker_has_no_teacher() -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    with pytest.raises(UnsupportedError, match="teacher_servers: on-policy distillation"):
        AgentLoopWorker({}, teacher_servers=[])


def test_without_partial_rollout_the_answer_comes_back_aborted(replica: Any, make_client: Any) -> None:
    async def scenario() -> Any:
        client = make_client(partial_rollout=False)
        running = asyncio.ensure_future(
            client.generate("t", prompt_ids=PROMPT, sampling_params={"ignore_eos": True, "logprobs": True})
        )
        await interrupt(replica, running, version=1, after=1)
        output = await running
        await replica.set_global_steps(0)
        return output

    output = asyncio.run(scenario())
    assert output.aborted
    assert len(output.token_ids) < 128
    assert output.extra_fields["max_global_steps"] == 0


def test_a_group_travels_in_one_call_and_survives_an_update(
    replica: Any, make_client: Any, balancer: GlobalRequestLoadBalancer
) -> None:
    lengths = [128, 40, 3, 128, 90, 1, 128, 128]
    requests = [
        (f"g{i}", [*PROMPT, i], {"ignore_eos": True, "logprobs": True, "max_tokens": length})
        for i, length in enumerate(lengths)
    ]

    async def scenario() -> tuple[Any, dict[str, int]]:
        running = asyncio.ensure_future(make_client().generate_group(requests))
        await interrupt(replica, running, version=2, after=5)
        counts = balancer.in_flight()
        outputs = await running
        await replica.set_global_steps(0)
        return outputs, counts

    outputs, counts = asyncio.run(scenario())
    assert [len(output.token_ids) for output in outputs] == lengths
    assert counts == {replica.server_id: len(lengths)}
    assert balancer.in_flight() == {replica.server_id: 0}


def test_short_answers_of_a_group_do_not_wait_for_the_long_one(make_client: Any) -> None:
    lengths = [128, 2, 128, 1]
    requests = [(f"g{i}", PROMPT, {"ignore_eos": True, "max_tokens": length}) for i, length in enumerate(lengths)]

    async def scenario() -> list[int]:
        return [index async for index, _ in make_client().stream_group(requests)]

    order = asyncio.run(scenario())
    assert sorted(order) == [0, 1, 2, 3]
    assert set(order[:2]) == {1, 3}


def test_counts_are_balanced_after_errors_deadlines_and_cancellation(
    replica: Any, make_client: Any, balancer: GlobalRequestLoadBalancer
) -> None:
    async def scenario() -> dict[str, Any]:
        client, hurried = make_client(), make_client(deadline_s=0.2)
        for _ in range(3):
            with pytest.raises(DataError):
                await client.generate("long", prompt_ids=[3] * 300, sampling_params={})
        await replica.abort_all_requests()
        with pytest.raises(WaitTimeout, match=replica.server_id):
            await hurried.generate("late", prompt_ids=PROMPT, sampling_params={})
        waiting = asyncio.ensure_future(client.generate("cancelled", prompt_ids=PROMPT, sampling_params={}))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await replica.resume_generation()
        async with asyncio.timeout(30):
            while (health := await replica.health())["in_flight"]:
                await asyncio.sleep(0.01)
        return health

    health = asyncio.run(scenario())
    assert health["in_flight"] == 0, "requests that nobody waits for must leave the engine"
    assert balancer.in_flight() == {replica.server_id: 0}


def test_a_client_can_be_sent_to_another_process(make_client: Any) -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Agent:
        async def run(self, client: LLMServerClient) -> int:
            output = await client.generate("remote", prompt_ids=PROMPT, sampling_params={"max_tokens": 7})
            return len(output.token_ids)

    agent = Agent.remote()
    assert ray.get(agent.run.remote(make_client()), timeout=60) <= 7
    ray.kill(agent)


def test_the_client_needs_neither_torch_nor_the_engine() -> None:
    script = (
        "import sys; import verl.workers.rollout.llm_client; "
        "print([name for name in ('torch', 'vllm', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("pool", "rollout", "expected"),
    [
        ({"nnodes": 1, "n_gpus_per_node": 4}, {"tensor_model_parallel_size": 2}, (4, 2)),
        ({"nnodes": 2, "n_gpus_per_node": 4}, {"tensor_model_parallel_size": 1}, (4, 8)),
        ({"nnodes": 0, "n_gpus_per_node": 8}, {"nnodes": 1, "n_gpus_per_node": 2}, (2, 2)),
    ],
)
def test_replicas_are_what_the_pool_holds(
    rollout_config: Any, pool: dict[str, int], rollout: dict[str, int], expected: tuple[int, int]
) -> None:
    from verl.workers.rollout.llm_server import pool_of, replica_count
    from verl.workers.rollout.replica import rollout_world_size

    config = OmegaConf.create({"rollout": pool, "actor_rollout_ref": {"rollout": rollout_config(**rollout)}})
    per_node, total = pool_of(config, None)
    assert (per_node, replica_count(total, rollout_world_size(config.actor_rollout_ref.rollout))) == expected


def test_a_pool_that_leaves_a_rest_is_refused_in_a_sentence() -> None:
    from verl.workers.rollout.llm_server import replica_count

    with pytest.raises(ConfigError, match=r"multiple of 2 .*tensor_model_parallel_size"):
        replica_count(3, 2)


def test_errors_of_the_server_arrive_as_themselves(make_client: Any) -> None:
    with pytest.raises(DataError) as caught:
        asyncio.run(make_client().generate("long", prompt_ids=[3] * 300, sampling_params={}))
    assert type(caught.value) is DataError
    assert "max_model_len" in str(pickle.loads(pickle.dumps(caught.value)))


@pytest.mark.parametrize(("replicas", "beside"), [(64, []), (1, [9999])])
def test_replicas_that_fit_one_by_one_but_not_together_are_refused_before_any_starts(
    ray_cluster: None, rollout_config: Any, model_config: Any, replicas: int, beside: list[int]
) -> None:
    from verl.single_controller.ray import capacity
    from verl.workers.rollout.llm_server import LLMServerManager

    node = capacity.Node("10.0.0.1", {"CPU": 4.0, "memory": 20 * capacity.MIN_RANK_BYTES})
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": rollout_config(name="hf"), "model": model_config},
            "rollout": {"nnodes": 1, "n_gpus_per_node": replicas},
            "trainer": {},
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        # A node of 8 GB, whatever runs the test.
        patch.setattr(capacity, "nodes", lambda: [node])
        with pytest.raises(
            ConfigError, match=rf"cannot hold {replicas} rollout replicas .*n_gpus_per_node.*10\.0\.0\.1"
        ):
            asyncio.run(LLMServerManager.create(config, beside=beside))
