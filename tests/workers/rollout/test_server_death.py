# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Two replicas whose processes are killed: who is named, who takes over, and what is left behind."""

import asyncio
import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from omegaconf import DictConfig, OmegaConf

from verl.errors import PeerLost

PROMPT = [3, 4, 5, 6]
PROBE = '''
import os
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

class Probe(vLLMColocateWorkerExtension):
    """The worker extension, and a look into the worker's environment."""

    def probe_environment(self, names):
        return {name: os.environ.get(name) for name in names}
'''


@pytest.fixture(scope="module")
def manager(
    ray_cluster: None, rollout_config: Any, model_config: DictConfig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """Two replicas started together as a job does it, with an extension that can look around in the worker."""
    from verl.workers.rollout.llm_server import LLMServerManager
    from verl.workers.rollout.replica import RolloutReplicaRegistry
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

    directory = tmp_path_factory.mktemp("probe")
    (directory / "verl_test_probe.py").write_text(PROBE)

    class ProbedReplica(vLLMReplica):
        def server_environment(self) -> dict[str, str]:
            path = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])
            return super().server_environment() | {"PYTHONPATH": path.rstrip(os.pathsep)}

    RolloutReplicaRegistry.register("probed", lambda: ProbedReplica)
    rollout = rollout_config(
        name="probed",
        max_num_seqs=16,
        skip_tokenizer_init=False,
        engine_kwargs={"vllm": {"worker_extension_cls": "verl_test_probe.Probe"}},
    )
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": rollout, "model": model_config},
            "rollout": {"nnodes": 1, "n_gpus_per_node": 2},
            "async_training": {"partial_rollout": True},
            "trainer": {"default_local_dir": str(directory)},
        }
    )
    manager = asyncio.run(LLMServerManager.create(config))
    yield manager
    asyncio.run(manager.shutdown())


def test_replicas_differ_in_address_process_and_randomness(manager: Any) -> None:
    async def scenario() -> tuple[list[Any], list[Any]]:
        health = await asyncio.gather(*(replica.health() for replica in manager.replicas))
        answers = await asyncio.gather(
            *(
                replica.call("generate", PROMPT, {"max_tokens": 16, "ignore_eos": True}, "r")
                for replica in manager.replicas
            )
        )
        return health, answers

    health, answers = asyncio.run(scenario())
    assert len(set(manager.server_addresses)) == 2
    assert len({facts["pid"] for facts in health} | {pid for facts in health for pid in facts["engine_pids"]}) == 4
    assert answers[0].token_ids != answers[1].token_ids


def test_the_workers_inherit_the_job_and_the_rocm_switch(manager: Any, job_env: Path) -> None:
    names = ["VERL_JOB_ID", "VERL_RUN_DIR", "VERL_REPLICA_RANK", "HSA_NO_SCRATCH_RECLAIM", "OMP_NUM_THREADS"]

    async def scenario() -> list[Any]:
        return await asyncio.gather(
            *(replica.call("collective_rpc", "probe_environment", args=(names,)) for replica in manager.replicas)
        )

    for rank, (environment,) in enumerate(asyncio.run(scenario())):
        assert environment == {
            "VERL_JOB_ID": "test",
            "VERL_RUN_DIR": str(job_env),
            "VERL_REPLICA_RANK": str(rank),
            "HSA_NO_SCRATCH_RECLAIM": "1",
            "OMP_NUM_THREADS": "1",
        }


def test_openai_clients_are_served_by_the_same_engine_and_wait_for_the_same_pause(manager: Any) -> None:
    replica = manager.replicas[1]

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://{replica.server_address}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)

    model = manager.config.actor_rollout_ref.model.path
    chat = {"model": model, "messages": [{"role": "user", "content": "12+34="}], "max_tokens": 5, "temperature": 0}
    first = post("/v1/chat/completions", chat)
    assert first["usage"]["prompt_tokens"] == 6, "the chat template of the tiny model adds nothing"
    assert first["usage"]["completion_tokens"] <= 5

    async def scenario() -> tuple[bool, dict[str, Any]]:
        await replica.abort_all_requests()
        waiting = asyncio.ensure_future(asyncio.to_thread(post, "/v1/chat/completions", chat))
        await asyncio.sleep(0.5)
        waited = not waiting.done()
        await replica.resume_generation()
        return waited, await waiting

    waited, second = asyncio.run(scenario())
    assert waited
    assert second["choices"][0]["message"] == first["choices"][0]["message"]


def test_the_engines_lines_go_to_a_file_of_the_run(manager: Any) -> None:
    logs = Path(manager.config.trainer.default_local_dir) / "logs"
    for rank in range(2):
        assert "Initializing a V1 LLM engine" in (logs / f"probed_server_{rank}_0.log").read_text()


def test_a_killed_server_is_named_leaves_nothing_and_the_other_takes_over(manager: Any) -> None:
    shared_memory = set(os.listdir("/dev/shm"))
    client = manager.client()

    async def scenario() -> tuple[str, list[int], Any]:
        groups = [
            asyncio.ensure_future(
                client.generate_group([(f"{name}{i}", PROMPT, {"ignore_eos": True}) for i in range(16)])
            )
            for name in ("a", "b")
        ]
        async with asyncio.timeout(30):
            while min([(await replica.health())["in_flight"] for replica in manager.replicas]) == 0:
                await asyncio.sleep(0.005)
        victim = await manager.replicas[0].health()
        os.kill(victim["pid"], signal.SIGKILL)
        results = await asyncio.gather(*groups, return_exceptions=True)
        lost = [result for result in results if isinstance(result, PeerLost)]
        assert len(lost) == 1, results
        again = await client.generate_group([(f"a{i}", PROMPT, {"max_tokens": 5}) for i in range(16)])
        return str(lost[0]), victim["engine_pids"], again

    message, engine_pids, again = asyncio.run(scenario())
    assert manager.replicas[0].server_id in message
    assert len(again) == 16
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in engine_pids if psutil.pid_exists(pid)], timeout=10)
    assert alive == [], "the engine must die with its server"
    assert set(os.listdir("/dev/shm")) <= shared_memory


def test_a_killed_engine_is_named_with_its_pid_and_signal(manager: Any) -> None:
    replica, client = manager.replicas[1], manager.client()

    async def scenario() -> tuple[int, BaseException, BaseException, BaseException]:
        running = asyncio.ensure_future(client.generate("a1", prompt_ids=PROMPT, sampling_params={"ignore_eos": True}))
        async with asyncio.timeout(30):
            while (facts := await replica.health())["in_flight"] == 0:
                await asyncio.sleep(0.005)
        (pid,) = facts["engine_pids"]
        # An engine that stands still has a control call under way when it dies.
        os.kill(pid, signal.SIGSTOP)
        asked = asyncio.ensure_future(replica.call("weight_state"))
        await asyncio.sleep(0.5)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            unanswered = await asyncio.gather(asked, return_exceptions=True)
        assert isinstance(unanswered[0], PeerLost)
        results = await asyncio.gather(running, return_exceptions=True)
        results += await asyncio.gather(replica.health(), return_exceptions=True)
        # The balancer has forgotten both servers by now.
        results += await asyncio.gather(
            client.generate("a2", prompt_ids=PROMPT, sampling_params={}), return_exceptions=True
        )
        return pid, *results

    pid, lost, health, none_left = asyncio.run(scenario())
    for error in (lost, health):
        assert isinstance(error, PeerLost)
        assert f"pid {pid}: killed by SIGKILL" in str(error)
        assert "rollout server 1" in str(error)
    assert isinstance(none_left, PeerLost)
    assert "no rollout server is left" in str(none_left)


def test_a_transfer_to_an_engine_that_has_died_ends_with_its_name(manager: Any) -> None:
    """The engine of the test before: nobody will ever introduce itself to the sender."""
    from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

    config = manager.config.actor_rollout_ref
    adapter = ServerAdapter(config.rollout, config.model, replica_rank=1)

    async def scenario() -> None:
        async with asyncio.timeout(60):
            await adapter._while_served(asyncio.sleep(3600))

    with pytest.raises(PeerLost, match=r"rollout server 1.*killed by SIGKILL"):
        asyncio.run(scenario())
