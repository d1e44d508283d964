# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a process inherits from the job that started it: job id, private node-local directory, replica rank."""

import os
import stat
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

from verl.errors import TransportError

JOB_ID_ENV = "VERL_JOB_ID"
RUN_DIR_ENV = "VERL_RUN_DIR"
REPLICA_RANK_ENV = "VERL_REPLICA_RANK"

# sun_path holds 108 bytes with the final zero; ZMQ needs the path whole.
MAX_SOCKET_PATH_BYTES = 107


@dataclass(frozen=True)
class LaunchInfo:
    """The three facts our own processes pass on through the environment.

    `run_dir` is node-local and holds sockets only; checkpoints and logs live in `trainer.default_local_dir`.
    """

    job_id: str
    run_dir: Path
    replica_rank: int = 0

    @classmethod
    def new(cls) -> "LaunchInfo":
        """A fresh job: eight random hex digits, and a directory of this user's that carries them."""
        job_id = uuid.uuid4().hex[:8]
        return cls(job_id, own_root(default_run_root(), job_id) / job_id)

    @classmethod
    def from_env(cls) -> "LaunchInfo":
        """The job this process belongs to; without one in the environment, a job of its own that children inherit."""
        job_id = os.environ.get(JOB_ID_ENV)
        if job_id is None:
            info = cls.new()
            os.environ.update(info.to_env())
            return info
        run_dir = Path(os.environ.get(RUN_DIR_ENV) or own_root(default_run_root(), job_id) / job_id)
        return cls(job_id, run_dir, int(os.environ.get(REPLICA_RANK_ENV, "0")))

    def to_env(self) -> dict[str, str]:
        """Environment for child processes."""
        return {
            JOB_ID_ENV: self.job_id,
            RUN_DIR_ENV: str(self.run_dir),
            REPLICA_RANK_ENV: str(self.replica_rank),
        }

    def ensure_run_dir(self) -> Path:
        """Create the run directory (0700) on this node, refusing one that somebody else owns."""
        self.run_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.run_dir.mkdir(mode=0o700, exist_ok=True)
        # A parent that the user named (`VERL_RUN_DIR=/tmp/x`) is not ours to judge or to close.
        root = [self.run_dir.parent] if self.run_dir.parent.name.startswith(default_run_root().name) else []
        for directory in (*root, self.run_dir):
            if not _is_own_directory(directory):
                raise TransportError(
                    "the run directory belongs to somebody else",
                    where=str(directory),
                    got=f"uid {directory.lstat().st_uid}",
                    expected=f"a directory of uid {os.getuid()}",
                    remedy=f"unset {RUN_DIR_ENV} or point it to a directory of yours",
                )
            if directory.lstat().st_mode & 0o077:
                directory.chmod(0o700)
        return self.run_dir

    def socket_path(self, name: str) -> Path:
        """Path of a socket of this job on this node; at most 107 bytes, or an error that says what to shorten."""
        path = self.run_dir / f"{name}.sock"
        if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            raise TransportError(
                "the socket path is too long",
                where=str(path),
                got=f"{len(os.fsencode(path))} bytes",
                expected=f"at most {MAX_SOCKET_PATH_BYTES}",
                remedy=f"set TMPDIR or {RUN_DIR_ENV} to a shorter directory",
            )
        return path


def default_run_root() -> Path:
    """`<tmp>/verl-<uid>`: private by mode and named by user, so that two users never meet."""
    return Path(tempfile.gettempdir()) / f"verl-{os.getuid()}"


def own_root(path: Path, job_id: str | None = None) -> Path:
    """`path`, or a name of this job's beside it where somebody else has that name, by accident or not.

    Nothing is created. All processes of a job get the same answer; without `job_id` it is that of the environment.
    """
    if not os.path.lexists(path) or _is_own_directory(path):
        return path
    return path.with_name(f"{path.name}-{job_id or LaunchInfo.from_env().job_id}")


def _is_own_directory(path: Path) -> bool:
    facts = path.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()
