# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One live job per output directory."""

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from verl.errors import CheckpointError, ConfigError

LOCK_NAME = "run.lock"


class RunLock:
    """Held as long as the process lives or until `release`; the kernel lets go of a killed process's lock."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let the next job in; the file stays, so that two waiters cannot lock two different files."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> "RunLock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def acquire_run_lock(out_dir: str | Path) -> RunLock:
    """Lock `out_dir` for this process.

    Raises
    ------
    ConfigError
        a live job holds it; names its pid and host.
    CheckpointError
        the file system has no locks.
    """
    path = Path(out_dir) / LOCK_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not inheritable: a child that outlives this job must not keep the directory locked.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _read_holder(descriptor)
        os.close(descriptor)
        raise ConfigError(
            f"a live job (pid {holder.get('pid', 'unknown')} on {holder.get('host', 'unknown host')}) writes there",
            where=f"trainer.default_local_dir={path.parent}",
            remedy="stop it, or give this job a directory of its own",
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise CheckpointError(
            f"the directory cannot be locked ({error})",
            where=str(path.parent),
            remedy="put trainer.default_local_dir on a file system with locks",
        ) from error
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since_s": time.time()}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    return RunLock(path, descriptor)


def _read_holder(descriptor: int) -> dict[str, Any]:
    text = os.pread(descriptor, 4096, 0)
    try:
        return json.loads(text)
    except ValueError:
        # The holder is between taking the lock and writing its name.
        return {}
