# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A job that is interrupted: its code says by what, and no process, segment or directory of it stays."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

TAG = "VERL_TEST_TAG"
RECIPE = """
import subprocess
import sys
import threading
import hydra
import ray
from verl.trainer.main_ppo import TaskRunner, run_ppo

class Patient(TaskRunner):
    asked = None

    def run(self, config):
        self.asked = threading.Event()
        subprocess.Popen(["sleep", "1000"])
        out = config.trainer.default_local_dir
        open(out + "/first step", "w").close()
        if config.obeys:
            self.asked.wait(200)
            open(out + "/saved", "w").close()
        else:
            threading.Event().wait(200)

    def request_stop(self):
        self.asked.set()

@hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)
def main(config):
    sys.exit(run_ppo(config, task_runner_class=ray.remote(num_cpus=0)(Patient)))

if __name__ == "__main__":
    main()
"""


def tagged(tag: str) -> list[str]:
    """Command lines of the live processes that the job started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(TAG) == tag:
                found.append(" ".join(process.cmdline())[:80])
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def until(ready: Callable[[], bool], deadline_s: float) -> bool:
    end_s = time.monotonic() + deadline_s
    while not ready() and time.monotonic() < end_s:
        time.sleep(0.2)
    return ready()


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A place for what a job keeps on a node; short, because sockets live below it."""
    directory = Path(tempfile.mkdtemp(prefix="j"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize(
    ("number", "obeys"),
    [(signal.SIGINT, True), (signal.SIGTERM, False)],
    ids=["Ctrl-C once, and the run saves", "told twice, and the run never listens"],
)
def test_an_interrupted_job_ends_with_its_signals_code_and_leaves_nothing(
    tiny_model_dir: Path, tmp_path: Path, short_tmp: Path, number: signal.Signals, obeys: bool
) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE)
    tag, before = uuid.uuid4().hex, set(os.listdir("/dev/shm"))
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("VERL_", "RAY_ADDRESS"))}
    environ |= {TAG: tag, "TMPDIR": str(short_tmp)}
    own = [f"actor_rollout_ref.model.path={tiny_model_dir}", f"trainer.default_local_dir={tmp_path}", f"+obeys={obeys}"]
    command = [sys.executable, str(tmp_path / "recipe.py"), *own]
    job = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        assert until((tmp_path / "first step").exists, 200)
        assert any(line.startswith("sleep") for line in tagged(tag))
        job.send_signal(number)
        if not obeys:
            time.sleep(2)
            assert job.poll() is None, "the first one only asks"
            job.send_signal(number)
        _, said = job.communicate(timeout=120)
        assert job.returncode == 128 + number, said[-3000:]
        assert (tmp_path / "saved").exists() is obeys
        assert until(lambda: not tagged(tag), 60), tagged(tag)
        assert not [name for name in set(os.listdir("/dev/shm")) - before if "verl" in name]
        assert not list((short_tmp / f"verl-{os.getuid()}").glob("*"))
    finally:
        job.kill()
