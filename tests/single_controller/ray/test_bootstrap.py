# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Starting and ending Ray: only our own cluster ends, and nothing of it stays, however the driver ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from verl.errors import ConfigError
from verl.single_controller.ray import reaper
from verl.single_controller.ray.bootstrap import init_ray
from verl.single_controller.ray.runtime_env import merge_runtime_env

# Generous: the machine may be busy with other tests. What is asserted is that it happens at all.
START_DEADLINE_S = 240
END_DEADLINE_S = 60

DRIVER = """
import json, os, subprocess, sys, time
from pathlib import Path
from verl.single_controller.ray.bootstrap import init_ray

log_dir, then = sys.argv[1:3]
kwargs = {"ray_init": {"num_cpus": None, "num_gpus": 2, "runtime_env": {"env_vars": {"WHO": "user"}}}}
job = init_ray(kwargs, {"env_vars": {"WHO": "default", "ALSO": "default"}}, log_dir=log_dir)
torch_loaded = "torch" in sys.modules
import ray

class Holder:
    def facts(self):
        child = subprocess.Popen(["sleep", "1000"])
        names = ("WHO", "ALSO", "CUDA_VISIBLE_DEVICES")
        return {"pids": [os.getpid(), child.pid], **{name: os.environ.get(name) for name in names}}

from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool
pool = RayResourcePool([2], max_colocate_count=2)
slots = [(pool.get_placement_groups(device_name="cuda")[0], index) for index in (0, 1, 1)]
actors = [RayClassWithInitArgs(Holder)(group, index, num_gpus=0.5, device_name="cuda") for group, index in slots]
facts = ray.get([actor.facts.remote() for actor in actors], timeout=200)
namespace = ray.get_runtime_context().namespace
temp_dir = str(Path(ray._private.worker.global_worker.node.get_session_dir_path()).parent)
print(json.dumps({"torch": torch_loaded, "facts": facts, "owns": job.owns_cluster, "temp_dir": temp_dir,
                  "namespace": namespace, "live_log": os.path.exists(f"{log_dir}/ray/raylet.out")}), flush=True)
if then == "shutdown":
    os.kill(facts[0]["pids"][0], 9)
    end = time.monotonic() + 60
    while os.path.exists(f"/proc/{facts[0]['pids'][1]}") and time.monotonic() < end:
        time.sleep(0.1)
    print(json.dumps({"child": os.path.exists(f"/proc/{facts[0]['pids'][1]}")}), flush=True)
    job.shutdown()
    job.shutdown()
    print(json.dumps({"connected": ray.is_initialized(), "temp_dir": os.path.exists(temp_dir)}), flush=True)
elif then == "exit":
    pass
else:
    time.sleep(1000)
"""


def run_driver(log_dir: Path, then: str, **exported: str) -> tuple[subprocess.Popen, dict]:
    env = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"} | exported
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(log_dir), then], stdout=subprocess.PIPE, text=True, env=env
    )
    return driver, next_words(driver)


def next_words(driver: subprocess.Popen) -> dict:
    """What the driver says next; Ray's own remarks about dead workers come in between."""
    for line in driver.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise AssertionError(f"the driver ended with {driver.wait(10)} and said nothing")


def running(pids: list[int]) -> list[int]:
    """Processes that still run; one that has ended and was not waited for by its new parent does not."""
    left = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            left.append(pid)
    return left


def family(pid: int) -> list[int]:
    """All processes below `pid`."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            children += [int(child), *family(int(child))]
    return children


def wait_until_gone(pids: list[int], deadline_s: float = END_DEADLINE_S) -> list[int]:
    end_s = time.monotonic() + deadline_s
    while running(pids) and time.monotonic() < end_s:
        time.sleep(0.2)
    return running(pids)


def test_a_cluster_of_our_own_starts_runs_and_ends_without_a_trace(tmp_path: Path) -> None:
    driver, said = run_driver(tmp_path, "shutdown")
    assert said["torch"] is False
    assert said["owns"] is True
    assert said["live_log"] is True
    assert len(said["temp_dir"]) < 40, "Ray's socket paths below it must stay under 107 bytes"
    assert len(said["namespace"]) == 36, "anonymous: a random id of this job"
    assert [fact["WHO"] for fact in said["facts"]] == ["user"] * 3
    assert [fact["ALSO"] for fact in said["facts"]] == ["default"] * 3
    # Three actors on two devices: two share the one of their slot, each with a half.
    devices = [fact["CUDA_VISIBLE_DEVICES"] for fact in said["facts"]]
    assert devices[1] == devices[2] != devices[0]
    assert set(devices) == {"0", "1"}
    started = [pid for fact in said["facts"] for pid in fact["pids"]]
    assert next_words(driver) == {"child": False}, "a killed actor takes its children with it"
    assert next_words(driver) == {"connected": False, "temp_dir": False}
    assert driver.wait(60) == 0
    assert wait_until_gone(started, 10) == []
    assert (tmp_path / "ray" / "raylet.out").is_file()
    assert not (tmp_path / "ray").is_symlink()


@pytest.fixture
def taken_tmp() -> Iterator[Path]:
    """A temporary directory where somebody has the name of this user's directory; short, for Ray's sockets."""
    directory = Path(tempfile.mkdtemp(prefix="t"))
    (directory / f"verl-{os.getuid()}").touch(mode=0o600)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def test_after_a_kill_of_the_driver_no_process_of_the_cluster_stays(tmp_path: Path, taken_tmp: Path) -> None:
    driver, said = run_driver(tmp_path, "sleep", TMPDIR=str(taken_tmp), VERL_JOB_ID="cafe", VERL_RUN_DIR="")
    assert Path(said["temp_dir"]).parent == taken_tmp / f"verl-{os.getuid()}-cafe", "another name was chosen"
    pids = family(driver.pid)
    assert len(pids) > 8
    driver.send_signal(signal.SIGKILL)
    driver.wait(10)
    assert wait_until_gone(pids) == []
    assert not os.path.exists(said["temp_dir"])
    assert (tmp_path / "ray" / "raylet.out").is_file(), "the logs tell what happened"


def test_another_start_of_the_same_run_keeps_the_first_ones_logs(tmp_path: Path) -> None:
    from verl.single_controller.ray.bootstrap import _free_name

    assert _free_name(tmp_path / "logs").name == "ray"
    (tmp_path / "logs" / "ray").symlink_to("/nowhere")
    (tmp_path / "logs" / "ray-2").mkdir()
    assert _free_name(tmp_path / "logs").name == "ray-3"


def test_a_job_on_a_cluster_that_exists_leaves_it_alone(ray_cluster: None, tmp_path: Path) -> None:
    program = (
        "import sys\nfrom verl.single_controller.ray.bootstrap import init_ray\n"
        "job = init_ray({'ray_init': {'address': sys.argv[1], 'num_cpus': 64}})\n"
        "import ray\nassert ray.cluster_resources()['CPU'] == 4\n"
        "print(job.owns_cluster)\njob.shutdown()\nprint(ray.is_initialized())"
    )
    address = ray.get_runtime_context().gcs_address
    done = subprocess.run(
        [sys.executable, "-c", program, address], capture_output=True, text=True, timeout=START_DEADLINE_S
    )
    assert done.stdout.split() == ["False", "False"], done.stderr
    assert "num_cpus" in done.stderr, "what has no effect is said"
    assert ray.is_initialized()
    assert ray.cluster_resources()["CPU"] == 4


def test_a_connection_that_exists_is_used_and_left_alone(ray_cluster: None) -> None:
    job = init_ray({"ray_init": {"num_cpus": None}})
    assert not job.owns_cluster
    assert job.address == ray.get_runtime_context().gcs_address
    job.shutdown()
    assert ray.is_initialized()


def test_the_users_environment_wins_variable_by_variable() -> None:
    base = {"env_vars": {"A": "1", "B": "1"}, "working_dir": None}
    user = {"env_vars": {"B": "2", "C": "2"}, "pip": ["x"]}
    merged = merge_runtime_env(base, user)
    assert merged == {"env_vars": {"A": "1", "B": "2", "C": "2"}, "working_dir": None, "pip": ["x"]}
    assert base["env_vars"] == {"A": "1", "B": "1"}
    assert merge_runtime_env(None, None) == {}
    with pytest.raises(ConfigError, match=r"env_vars.*'N': 1"):
        merge_runtime_env({"env_vars": {"N": 1}}, None)


def test_whoever_only_reads_a_log_is_not_a_process_of_the_cluster(tmp_path: Path) -> None:
    log = tmp_path / "worker.out"
    log.write_text("line\n")
    reader = subprocess.Popen(["tail", "-f", str(log)], stdout=subprocess.DEVNULL)
    with log.open("a") as out:
        writer = subprocess.Popen(["sleep", "100"], stdout=out)
    try:
        time.sleep(0.3)
        assert list(reaper.holders(tmp_path)) == [writer.pid]
    finally:
        reader.kill()
        writer.kill()
        reader.wait(10)
        writer.wait(10)


# As vLLM's engine: the worker's child writes elsewhere, and has a semaphore.
HOLDER = """
import subprocess, sys
child = "import multiprocessing as m; l = m.get_context('spawn').Lock(); print(l._semlock.name, flush=True); input()"
subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL).wait()
"""


def test_named_semaphores_go_with_the_processes_that_had_them(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    with (tmp_path / "cluster" / "worker.err").open("a") as log:
        # A session of its own, killed whole as Ray kills a worker: Python's own clean-up dies with it.
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    name = Path("/dev/shm") / f"sem.{holder.stdout.readline().strip().removeprefix('/')}"
    try:
        assert name.exists() and reaper.semaphores(tmp_path / "cluster") == {str(name)}
        named = reaper.semaphores(tmp_path / "cluster")
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait(10)
    assert name.exists()
    reaper.clean_up(tmp_path / "cluster", None, named)
    assert not name.exists() and not (tmp_path / "cluster").exists()
