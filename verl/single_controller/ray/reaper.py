# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The end of a local Ray cluster: no process of it stays, its logs are kept, its directory goes.

Ray's servers die with the driver, its agents only a minute later, and what an actor started may outlive it. So a
small process watches the driver and cleans up after it however it ends, kill -9 included. A process belongs to the
cluster if it holds a file below the cluster's directory open for writing: Ray sends every process's output there, and
children inherit it (whoever reads a log, `tail -f` say, does not).
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

GRACE_S = 5.0
_POLL_S = 0.25
_SHM = "/dev/shm"


def start(temp_dir: Path, log_dir: Path | None, run_dir: Path) -> "subprocess.Popen[bytes]":
    """Watch this process; `dismiss` ends the watch. `run_dir` (the job's sockets) goes only where the watch acts."""
    arguments = (os.getpid(), temp_dir, log_dir or "", run_dir)
    command = [sys.executable, "-S", "-E", __file__, *map(str, arguments)]
    # A session of its own: Ctrl-C and a kill of the driver's process group must not reach it.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def dismiss(watcher: "subprocess.Popen[bytes]") -> None:
    """End the watch without a clean-up."""
    watcher.kill()
    watcher.wait(timeout=GRACE_S)
    if watcher.stdin is not None:
        watcher.stdin.close()


def clean_up(temp_dir: Path, log_dir: Path | None, named: Iterable[str] = ()) -> None:
    """Wait `GRACE_S` for the cluster's processes to end by themselves, kill the rest, keep the logs, remove the dir.

    `named`: semaphores of processes that may have ended already; those of the others are found here.
    """
    named = {*named, *semaphores(temp_dir)}
    end_s = time.monotonic() + GRACE_S
    while (left := list(holders(temp_dir))) and time.monotonic() < end_s:
        time.sleep(_POLL_S)
    for pid in left:
        _kill(pid)
    while any(holders(temp_dir)) and time.monotonic() < end_s + GRACE_S:
        time.sleep(_POLL_S)
    for path in named:
        with contextlib.suppress(OSError):
            os.unlink(path)
    _keep_logs(temp_dir, log_dir)
    shutil.rmtree(temp_dir, ignore_errors=True)


def semaphores(directory: Path) -> set[str]:
    """Paths of the named semaphores that the cluster of `directory` and the processes it started have open.

    Python unlinks them when their last process ends in order; Ray kills a worker's children, the one that would do
    it included.
    """
    inodes: set[int] = set()
    for pid in _with_descendants(holders(directory)):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as maps:
            # By inode: glibc maps the file under a name of its own before it gives it the right one.
            inodes.update(int(line.split()[4]) for line in maps if f"{_SHM}/sem." in line)
    if not inodes:
        return set()
    return {entry.path for entry in os.scandir(_SHM) if entry.name.startswith("sem.") and entry.inode() in inodes}


def _with_descendants(pids: Iterable[int]) -> set[int]:
    """An engine writes to a file of the run and none of the cluster, but a worker of the cluster started it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as stat:
                # pid (name) state parent …; a name may hold anything, closing brackets too.
                children.setdefault(int(stat.read().rpartition(")")[2].split()[1]), []).append(int(name))
    found, left = set(), list(pids)
    while left:
        pid = left.pop()
        found.add(pid)
        left += children.get(pid, [])
    return found


def holders(directory: Path) -> Iterator[int]:
    """Processes of this user, other than this one, that hold a file below `directory` open for writing."""
    prefix = f"{os.path.realpath(directory)}/"
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _holds(entry.path, prefix):
            yield int(entry.name)


def _holds(process: str, prefix: str) -> bool:
    try:
        links = os.listdir(f"{process}/fd")
    except OSError:
        # It has ended, or belongs to somebody else.
        return False
    for link in links:
        try:
            if os.readlink(f"{process}/fd/{link}").startswith(prefix) and _is_for_writing(f"{process}/fdinfo/{link}"):
                return True
        except OSError:
            continue
    return False


def _is_for_writing(fdinfo: str) -> bool:
    with open(fdinfo) as lines:
        flags = next(line.split()[1] for line in lines if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _keep_logs(temp_dir: Path, log_dir: Path | None) -> None:
    """While the cluster ran the log directory was a link into the session; now the files themselves move there."""
    if log_dir is None or not log_dir.is_symlink():
        return
    source = Path(os.path.realpath(log_dir))
    log_dir.unlink()
    if source.is_dir() and Path(os.path.realpath(temp_dir)) in source.parents:
        shutil.copytree(source, log_dir, dirs_exist_ok=True)


def watch(driver_pid: int, temp_dir: Path, log_dir: Path | None, run_dir: Path) -> None:
    """Return once the driver is gone and everything of its cluster with it."""
    while os.getppid() == driver_pid:
        # The pipe ends with the driver, at once; its pid tells where a forked child keeps the pipe open.
        if select.select([sys.stdin], [], [], 1.0)[0]:
            break
    while os.getppid() == driver_pid:
        time.sleep(_POLL_S)
    clean_up(temp_dir, log_dir)
    shutil.rmtree(run_dir, ignore_errors=True)


if __name__ == "__main__":
    watch(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3] else None, Path(sys.argv[4]))
