# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One live job per directory; a killed one lets go."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from verl.config.run_lock import LOCK_NAME, acquire_run_lock
from verl.errors import ConfigError

HOLDER = """
import subprocess, sys, time
from verl.config.run_lock import acquire_run_lock
lock = acquire_run_lock(sys.argv[1])
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that holds the lock of tmp_path, and the pid of a child of its."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    yield process, child
    process.kill()
    process.wait()
    os.kill(child, signal.SIGKILL)


def test_a_second_job_is_refused_with_the_pid_and_host_of_the_first(
    tmp_path: Path, holder: tuple[subprocess.Popen[str], int]
) -> None:
    with pytest.raises(ConfigError, match=rf"pid {holder[0].pid} on {os.uname().nodename}\) writes there"):
        acquire_run_lock(tmp_path)


def test_a_killed_job_lets_go_though_its_child_lives_on(
    tmp_path: Path, holder: tuple[subprocess.Popen[str], int]
) -> None:
    process, child = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    os.kill(child, 0)
    acquire_run_lock(tmp_path).release()


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    with acquire_run_lock(tmp_path / "deep" / "run") as lock:
        assert lock.path.name == LOCK_NAME
        with pytest.raises(ConfigError, match=f"pid {os.getpid()}"):
            acquire_run_lock(tmp_path / "deep" / "run")
    assert lock.path.read_text() == ""
    acquire_run_lock(tmp_path / "deep" / "run").release()
    lock.release()
