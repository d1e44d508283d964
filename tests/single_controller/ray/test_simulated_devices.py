# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Worker groups on a Ray cluster of two nodes with simulated AMD devices: real actors, real masks, a HIP build of torch
that has no hardware behind it. The second node was started with a mask of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SIMULATED = ROOT / "tests" / "platform" / "simulated_torch"
DRIVER = r'''
import json, sys
import ray
from ray.cluster_utils import Cluster
from verl.errors import ConfigError
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, ResourcePoolManager

cluster = Cluster(initialize_head=True, head_node_args={
    "num_cpus": 4, "num_gpus": 4, "object_store_memory": 80 << 20, "include_dashboard": False,
    "env_vars": {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}})
cluster.add_node(num_cpus=4, num_gpus=4, object_store_memory=80 << 20, node_ip_address="127.0.0.2",
                 env_vars={"CUDA_VISIBLE_DEVICES": "7,6,5,4"})
ray.init(cluster.address, log_to_driver=False)

CHILD = """
import json, os, torch
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
seen = torch.cuda.seen()
masks = [name for name in os.environ if name.endswith("VISIBLE_DEVICES") and not name.startswith("RAY")]
print(json.dumps({"torch": torch.__version__, "seen": len(seen), "mine": seen[torch.cuda.current_device()],
    "masks": masks, **{name: os.environ[name] for name in ("LOCAL_RANK", "RAY_LOCAL_RANK", "HSA_NO_SCRATCH_RECLAIM")}}))
"""

class Rank:
    @register(Dispatch.ONE_TO_ALL)
    def facts(self, code, path):
        # What torch would see, in a child: the worker itself needs a torch that computes.
        import json, os, subprocess, sys

        environ = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

def facts(pool, **extra):
    env = {"VERL_PLATFORM": "rocm"} | extra
    group = RayWorkerGroup(pool, RayClassWithInitArgs(Rank), worker_env=env, deadline_s=60)
    return group, group.facts(CHILD, sys.argv[1])

told = {}
pool = RayResourcePool([4, 4])
for name, extra in (("masked by Ray", {}), ("left alone", {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"})):
    group, told[name] = facts(pool, **extra)
    group.shutdown()
pool.release()

# Trainer and rollout on one device: the pools that the fully asynchronous trainer makes, on a cluster of one device.
ray.shutdown()
cluster.shutdown()
ray.init("local", num_cpus=4, num_gpus=1, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
trainer = ResourcePoolManager({"trainer_pool": [1]}, {"actor": "trainer_pool"}, device_share=0.5)
trainer.create_resource_pool()
rollout = RayResourcePool([1], max_colocate_count=1, device_share=0.5)
groups = [facts(pool) for pool in (trainer.get_resource_pool("actor"), rollout)]
told["shared"] = [rank for _, ranks in groups for rank in ranks]
told["free"] = ray.available_resources().get("GPU", 0.0)
# Three groups may share a slot by default: actor, critic and reference fit the trainer's half.
more = [facts(trainer.get_resource_pool("actor")) for _ in range(2)]
told["colocated"] = [rank["mine"] for _, ranks in more for rank in ranks]
try:
    RayResourcePool([3], device_share=0.5, name_prefix="three halves").get_placement_groups()
except ConfigError as error:
    told["refused"] = str(error)
print(json.dumps(told))
'''


def drive(code: str) -> Any:
    # A cluster of several raylets tells its address in Ray's directory, where other programs would find it.
    directory = tempfile.mkdtemp(prefix="vs-")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_TMPDIR": directory}
    command = [sys.executable, "-c", code, str(SIMULATED)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=250)
    shutil.rmtree(directory, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def told() -> Any:
    return drive(DRIVER)


def test_each_rank_sees_the_one_device_that_ray_gave_it(told: Any) -> None:
    ranks = told["masked by Ray"]
    assert {rank["torch"] for rank in ranks} == {"2.11.0+rocm7.2"}
    assert [rank["seen"] for rank in ranks] == [1] * 8
    assert sorted(rank["mine"] for rank in ranks) == [f"device-{number}" for number in range(8)]
    assert {rank["LOCAL_RANK"] for rank in ranks} == {"0"}
    assert [rank["RAY_LOCAL_RANK"] for rank in ranks] == list("01230123")


def test_a_rank_finds_its_device_among_all_of_a_node_that_has_a_mask_of_its_own(told: Any) -> None:
    ranks = told["left alone"]
    assert [rank["seen"] for rank in ranks] == [4] * 8
    assert sorted(rank["mine"] for rank in ranks) == [f"device-{number}" for number in range(8)], "one each"
    assert sorted(rank["LOCAL_RANK"] for rank in ranks) == sorted("01230123"), "ordinals, not names of devices"


def test_every_rank_has_one_mask_and_the_variables_of_rocm(told: Any) -> None:
    for rank in told["masked by Ray"] + told["left alone"]:
        assert rank["masks"] == ["CUDA_VISIBLE_DEVICES"]
        assert rank["HSA_NO_SCRATCH_RECLAIM"] == "1"


def test_trainer_and_rollout_share_one_device_by_halves(told: Any) -> None:
    assert [rank["mine"] for rank in told["shared"]] == ["device-0", "device-0"]
    assert told["free"] == 0, "both halves are reserved"
    assert told["colocated"] == ["device-0", "device-0"]
    assert "three halves" in told["refused"] and "0.5 of a GPU" in told["refused"] and "at most 2 on" in told["refused"]
