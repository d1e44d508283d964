# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Runs the real front door in a process of its own, watches it, and finds the processes it started."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

FULLY_ASYNC = "verl.experimental.fully_async_policy.fully_async_main"
SYNCHRONOUS = "verl.trainer.main_ppo"
GENERATION = "verl.trainer.main_generation_server"
ONE_STEP_OFF = "verl.experimental.one_step_off_policy.main_ppo"
TAG = "VERL_TEST_TAG"
# A slow two-core machine needs about a minute for the whole stack; a stuck one is found by this.
START_S = 240.0
END_S = 120.0


class Job:
    """One run of a front door with a tag in its environment, which every process below it inherits."""

    def __init__(self, out: Path, overrides: list[str], cwd: Path, module: str = FULLY_ASYNC) -> None:
        self.out = out
        self.tag = uuid.uuid4().hex
        self.log = cwd / f"job-{self.tag[:6]}.log"
        self.shm_before = set(os.listdir("/dev/shm"))
        # A place of its own for what a job keeps on a node; short, because sockets live below it.
        self.node_files = Path(tempfile.mkdtemp(prefix="j"))
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("VERL_", "RAY_ADDRESS"))}
        environment |= {TAG: self.tag, "HF_HUB_OFFLINE": "1", "VERL_HOME": str(cwd / "home")}
        environment["TMPDIR"] = str(self.node_files)
        command = [sys.executable, "-m", module]
        command += [f"trainer.default_local_dir={out}", f"trainer.rollout_data_dir={out}/rollouts"]
        command += overrides
        self.cwd = cwd / f"cwd-{self.tag[:6]}"
        self.cwd.mkdir()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=self.cwd, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    # -- watching --------------------------------------------------------------------------------------------------

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def metrics(self) -> list[dict[str, Any]]:
        path = self.out / "metrics.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    def until(self, ready: Callable[[], Any], what: str, deadline_s: float = START_S, every_s: float = 0.2) -> Any:
        """Poll `ready`; the job must stay alive until it is true."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            if value := ready():
                return value
            if self.process.poll() is not None:
                raise AssertionError(f"the job ended ({self.process.returncode}) before {what}:\n{self.text()[-3000:]}")
            time.sleep(every_s)
        raise AssertionError(f"not in {deadline_s} s: {what}\n{self.text()[-3000:]}")

    def until_version(self, version: int) -> None:
        self.until(lambda: any(record["step"] >= version for record in self.metrics()), f"policy version {version}")

    def wait(self, deadline_s: float = END_S) -> int:
        """Exit code of the job."""
        try:
            return self.process.wait(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job does not end:\n{self.text()[-3000:]}") from None

    # -- its processes ---------------------------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """All live processes that carry the tag."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(TAG) == self.tag:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found

    def pid_of(self, title: str) -> int:
        """The process whose title contains `title` (Ray and vLLM name theirs)."""
        for process in self.processes():
            if title in _title(process):
                return process.pid
        titles = [_title(process)[:60] for process in self.processes()]
        raise AssertionError(f"no process {title!r} among {titles}")

    def kill(self, title: str) -> int:
        """kill -9 of the process with this title; returns its pid."""
        pid = self.pid_of(title)
        os.kill(pid, signal.SIGKILL)
        return pid

    # -- its weight updates ----------------------------------------------------------------------------------------

    def weight_arena(self, sender: int, deadline_s: float = START_S) -> Path:
        """Catches the shared memory of a weight update while it is open, among the descriptors of its sender."""
        descriptors = Path(f"/proc/{sender}/fd")
        return self.until(lambda: next(filter(_is_arena, descriptors.iterdir()), None), "an update", deadline_s, 0.0)

    def loaded_torch(self) -> list[str]:
        """Titles of the processes that have torch's library mapped."""
        titles = []
        for process in self.processes():
            try:
                if any("libtorch_cpu" in region.path for region in process.memory_maps()):
                    titles.append(" ".join(process.cmdline())[:60])
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return titles

    def leftovers(self, deadline_s: float = 60.0) -> dict[str, list[str]]:
        """Processes, shared-memory segments and private directories that stay after the job has had time to go."""
        end = time.monotonic() + deadline_s
        while True:
            left = {
                "processes": [f"{process.pid} {_title(process)[:80]}" for process in self.processes()],
                "segments": sorted(name for name in set(os.listdir("/dev/shm")) - self.shm_before if "verl" in name),
                "directories": [str(path) for path in (self.node_files / f"verl-{os.getuid()}").glob("*")],
            }
            if not any(left.values()) or time.monotonic() > end:
                return {kind: names for kind, names in left.items() if names}
            time.sleep(0.5)

    def end(self) -> None:
        """Kill whatever is left (the clean-up of a failed test)."""
        for process in self.processes():
            process.kill()
        self.process.wait(timeout=30)
        shutil.rmtree(self.node_files, ignore_errors=True)


def _title(process: psutil.Process) -> str:
    """Its command line and name; of one that has ended a moment ago, that it has."""
    try:
        return f"{' '.join(process.cmdline())} {process.name()}"
    except psutil.NoSuchProcess:
        return "(has just ended)"


def _is_arena(descriptor: Path) -> bool:
    """Whether a descriptor is a nameless file in /dev/shm."""
    try:
        return os.readlink(descriptor).startswith("/dev/shm/#")
    except FileNotFoundError:
        return False
