# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Shared memory without a name: a file in /dev/shm that the kernel frees when its last process is gone.

A named segment outlives a killed process. `O_TMPFILE` gives one that never has a name: the peer opens it through
`/proc/<pid>/fd/<n>` while the owner lives, and after `kill -9` of either side nothing is left to sweep.
"""

import errno
import mmap
import os
from pathlib import Path

import torch

from verl.errors import TransportError

SHM_DIRECTORY = Path("/dev/shm")
_PAGE = mmap.PAGESIZE
# Reserving in steps keeps a small model's arena small; one step is far below the cost of copying it.
_STEP = 4 << 20


# Below this a huge page would be mostly empty.
_HUGE_PAGE = 2 << 20


def staging_memory(nbytes: int, device: torch.device) -> torch.Tensor:
    """`nbytes` of uint8 on `device`, to be written once and dropped whole.

    A version's tensors are new memory each time, and the faults of small pages cost more than the copy into them;
    huge pages are asked for where the kernel has them.
    """
    if device.type != "cpu" or nbytes < _HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(nbytes, dtype=torch.uint8, device=device)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError as error:
        # A kernel built without them answers EINVAL.
        if error.errno != errno.EINVAL:
            raise
    return torch.frombuffer(memory, dtype=torch.uint8)


def free_bytes(directory: Path = SHM_DIRECTORY) -> int:
    """Bytes that can still be reserved there."""
    facts = os.statvfs(directory)
    return facts.f_bavail * facts.f_frsize


class Arena:
    """A mapped run of shared bytes; `reserve` before writing, `view` to read and write.

    `close` only lets go: the mapping itself lives until the last tensor that views it is gone,
    so that a view kept by mistake is stale data and never a crash.
    """

    def __init__(self, fd: int, nbytes: int, directory: Path) -> None:
        self._fd: int | None = fd
        self.nbytes = nbytes
        self._directory = directory
        self._reserved = 0
        self._bytes: torch.Tensor | None = torch.frombuffer(mmap.mmap(fd, nbytes), dtype=torch.uint8)

    @classmethod
    def create(cls, nbytes: int, directory: Path = SHM_DIRECTORY) -> "Arena":
        """A new arena of `nbytes`, rounded up to pages; no memory is taken before `reserve`."""
        nbytes = max(_PAGE, -(-nbytes // _PAGE) * _PAGE)
        try:
            fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise TransportError(
                f"cannot create shared memory ({error.strerror})",
                where=str(directory),
                remedy=f"mount a tmpfs at {directory} that this user may write",
            ) from error
        try:
            os.ftruncate(fd, nbytes)
            return cls(fd, nbytes, directory)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, path: str, nbytes: int) -> "Arena":
        """Map the arena of another process of this user, named as `path` by its owner."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise TransportError(
                f"cannot open the sender's shared memory ({error.strerror})",
                where=path,
                remedy="run both sides as one user, in one container (they must share /proc)",
            ) from error
        try:
            size = os.fstat(fd).st_size
            if size < nbytes:
                raise TransportError("the shared memory is too small", where=path, got=size, expected=nbytes)
            return cls(fd, nbytes, SHM_DIRECTORY)
        except BaseException:
            os.close(fd)
            raise

    @property
    def path(self) -> str:
        """Where a peer opens this arena while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def reserve(self, end: int) -> None:
        """Take the memory of the first `end` bytes, so that writing there cannot fail.

        Raises
        ------
        TransportError
            names the file system that is full; without this a write would end the process with SIGBUS.
        """
        end = min(self.nbytes, -(-end // _STEP) * _STEP)
        if end <= self._reserved:
            return
        assert self._fd is not None
        try:
            os.posix_fallocate(self._fd, self._reserved, end - self._reserved)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG):
                raise
            raise TransportError(
                f"shared memory is full ({error.strerror})",
                where=str(self._directory),
                got=f"{free_bytes(self._directory) >> 10} KiB free",
                expected=f"{(end - self._reserved) >> 10} KiB",
                remedy=f"free {self._directory}, or start the container with a larger --shm-size",
            ) from error
        self._reserved = end

    def view(self, offset: int, nbytes: int) -> torch.Tensor:
        """Bytes [offset, offset + nbytes) as uint8, shared with the peer."""
        if self._bytes is None or offset < 0 or offset + nbytes > self.nbytes:
            raise TransportError(
                "outside the shared memory", got=f"[{offset}, {offset + nbytes})", expected=f"[0, {self.nbytes})"
            )
        return self._bytes[offset : offset + nbytes]

    def close(self) -> None:
        """Let go of the file; may be called twice."""
        fd, self._fd, self._bytes = self._fd, None, None
        if fd is not None:
            os.close(fd)
