# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Names, environment and refusals of replicas; placement itself is tested by every server that starts."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verl.errors import ConfigError, UnsupportedError
from verl.workers.rollout.placement import WorkerPlace
from verl.workers.rollout.replica import RolloutReplicaRegistry, get_rollout_replica_class
from verl.workers.rollout.schemas import RolloutMode
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica


def make(rollout: Any, model_config: Any, rank: int = 0, **options: Any) -> vLLMReplica:
    replica = vLLMReplica(rank, rollout, model_config, **options)
    replica.rollout_mode = RolloutMode.STANDALONE
    return replica


def test_vllm_is_found_by_its_name_and_a_misspelt_one_is_answered_with_the_nearest() -> None:
    assert get_rollout_replica_class("vllm") is vLLMReplica
    with pytest.raises(ConfigError, match="did you mean 'vllm'"):
        RolloutReplicaRegistry.get("vlm")


SHOW_ENVIRONMENT = """
import json
from verl.config.front_door import load
from verl.workers.rollout.schemas import RolloutMode
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica
given = ["actor_rollout_ref.model.path=m", "data.train_files=a", "data.val_files=b"]
config, _ = load(["--config-name=quickstart", *given])
replica = vLLMReplica(3, config.actor_rollout_ref.rollout, config.actor_rollout_ref.model)
replica.rollout_mode = RolloutMode.STANDALONE
print(json.dumps(replica.server_environment()))
"""


def server_environment(**exported: str) -> dict[str, str]:
    """What a server would start with, in a process that has just these variables exported beside the usual ones."""
    usual = {key: value for key, value in os.environ.items() if key not in ("HSA_NO_SCRATCH_RECLAIM", "VERL_PLATFORM")}
    command = [sys.executable, "-c", SHOW_ENVIRONMENT]
    out = subprocess.run(command, env=usual | exported, capture_output=True, text=True, timeout=200, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def test_the_environment_of_a_server_names_job_replica_and_switches(job_env: Path) -> None:
    environment = server_environment()
    assert environment["VERL_JOB_ID"] == "test"
    assert environment["VERL_RUN_DIR"] == str(job_env)
    assert environment["VERL_REPLICA_RANK"] == "3"
    assert environment["HSA_NO_SCRATCH_RECLAIM"] == "1"
    assert server_environment(HSA_NO_SCRATCH_RECLAIM="0")["HSA_NO_SCRATCH_RECLAIM"] == "0"


def test_ray_must_not_hide_devices_from_a_server(job_env: Path) -> None:
    flags = ("RAY_EXPERIMENTAL_NOSET_", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")
    told = {
        name: {key: value for key, value in server_environment(VERL_PLATFORM=name).items() if key.startswith(flags)}
        for name in ("rocm", "cuda", "cpu")
    }
    assert told == {
        "rocm": {
            "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
            "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES": "1",
            "RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES": "1",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        },
        "cuda": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"},
        "cpu": {},
    }


def test_switches_for_cpu_stay_away_from_a_device(job_env: Path) -> None:
    environment = server_environment(VERL_PLATFORM="rocm", NCCL_CUMEM_ENABLE="1")
    assert "TORCHDYNAMO_DISABLE" not in environment
    assert environment["NCCL_CUMEM_ENABLE"] == "1", "what the user exported wins"


SERVER_OF_TWO_DEVICES = """
import os, subprocess, sys
from types import SimpleNamespace
from verl.workers.rollout.vllm_rollout.vllm_server import vLLMHttpServer
vLLMHttpServer(SimpleNamespace(), SimpleNamespace(), gpus_per_node=2, cuda_visible_devices=sys.argv[1])
engine = "import os, torch; print(torch.cuda.seen(), sorted(k for k in os.environ if k.endswith('_VISIBLE_DEVICES')))"
subprocess.run([sys.executable, "-c", engine], env={**os.environ, "PYTHONPATH": sys.argv[2]}, check=True)
"""


@pytest.mark.parametrize(
    "mask", [{}, {"HIP_VISIBLE_DEVICES": "4,5,6,7"}, {"CUDA_VISIBLE_DEVICES": ""}, {"HIP_VISIBLE_DEVICES": ""}]
)
def test_the_engine_of_a_server_sees_the_devices_that_the_server_was_given(mask: dict[str, str]) -> None:
    simulated = Path(__file__).parents[2] / "platform" / "simulated_torch"
    environ = {key: value for key, value in os.environ.items() if not key.endswith("_VISIBLE_DEVICES")}
    command = [sys.executable, "-c", SERVER_OF_TWO_DEVICES, "7,5", str(simulated)]
    environ |= {"VERL_PLATFORM": "rocm", **mask}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['device-7', 'device-5'] ['CUDA_VISIBLE_DEVICES']"


def test_a_replica_over_two_nodes_is_refused(
    rollout_config: Any, model_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = make(rollout_config(tensor_model_parallel_size=2), model_config, gpus_per_node=1)

    async def two_nodes() -> list[WorkerPlace]:
        return [WorkerPlace("a", "10.0.0.1", ()), WorkerPlace("b", "10.0.0.2", ())]

    monkeypatch.setattr(replica, "_places", two_nodes)
    with pytest.raises(UnsupportedError, match="use more replicas"):
        asyncio.run(replica.launch_servers())


def test_a_replica_that_does_not_fit_the_training_workers_is_refused(rollout_config: Any, model_config: Any) -> None:
    class Group:
        workers = ("only one",)

    replica = make(rollout_config(), model_config, 1)
    with pytest.raises(ConfigError, match="replica 1 does not fit"):
        asyncio.run(replica.init_hybrid(Group()))


def test_servers_of_different_kinds_have_different_names(rollout_config: Any, model_config: Any) -> None:
    replicas = [
        make(rollout_config(), model_config, 0),
        make(rollout_config(), model_config, 1),
        make(rollout_config(), model_config, 0, is_reward_model=True),
        make(rollout_config(), model_config, 0, is_reward_model=True, name_suffix="_b"),
    ]
    assert len({replica.server_id for replica in replicas}) == 4
    assert replicas[0].server_id == "vllm_server_0"


def test_a_replica_that_was_not_launched_says_so(rollout_config: Any, model_config: Any) -> None:
    with pytest.raises(ConfigError, match="vllm_server_0 has not been launched"):
        _ = make(rollout_config(), model_config).server_address


CUSTOM = """
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

class MyServer(vLLMHttpServer):
    pass

class MyReplica(vLLMReplica):
    pass

class Stranger:
    pass
"""


def test_a_server_or_replica_class_of_the_users_takes_the_place_of_ours(rollout_config: Any, tmp_path: Path) -> None:

    from verl.workers.rollout.llm_server import replica_class

    file = tmp_path / "mine.py"
    file.write_text(CUSTOM)

    def chosen(name: str) -> type:
        return replica_class(rollout_config(agent={"custom_async_server": {"path": str(file), "name": name}}))

    assert issubclass(chosen("MyServer"), vLLMReplica)
    assert chosen("MyServer").server_class.__name__ == "MyServer"
    assert chosen("MyReplica").__name__ == "MyReplica"
    with pytest.raises(ConfigError, match="custom_async_server"):
        chosen("Stranger")
    assert replica_class(rollout_config()) is vLLMReplica


def test_a_server_that_fails_to_shut_down_takes_the_rest_of_its_replica_with_it(
    ray_cluster: None, rollout_config: Any, model_config: Any
) -> None:
    import ray

    class Sulky:
        def shutdown(self) -> None:
            raise RuntimeError("sulks")

    replica = make(rollout_config(), model_config)
    server, worker = (ray.remote(Sulky).options(num_cpus=0).remote() for _ in range(2))
    replica.servers, replica.workers, replica._owns_workers = [server], [worker], True
    asyncio.run(replica.shutdown())
    assert replica.servers == replica.workers == []
    for actor in (server, worker):
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(actor.shutdown.remote(), timeout=60)
