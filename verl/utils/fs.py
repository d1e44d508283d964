# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Files from anywhere to this machine: local paths pass through, remote ones are copied once under a lock."""

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec

from verl.errors import DataError
from verl.launch_info import own_root
from verl.waits import expired, waiting_on

__all__ = [
    "copy",
    "copy_local_path_from_hdfs",
    "copy_to_local",
    "copy_to_shm",
    "exists",
    "get_local_temp_path",
    "is_non_local",
    "local_mkdir_safe",
    "makedirs",
    "md5_encode",
    "verify_copy",
]

logger = logging.getLogger(__name__)

SHM_ROOT = Path("/dev/shm")
# A model of hundreds of gigabytes over a slow network; longer than that, something is wrong.
LOCK_DEADLINE_S = 3600.0


def is_non_local(path: str) -> bool:
    """Whether the path names a remote file system (`hdfs://`, `s3://` …)."""
    return "://" in path and not path.startswith("file://")


def exists(path: str, **kwargs: Any) -> bool:
    """Whether a local or remote path is there; `kwargs` go to its fsspec file system."""
    filesystem, inner = fsspec.core.url_to_fs(path, **kwargs)
    return filesystem.exists(inner)


def makedirs(name: str, mode: int = 0o777, exist_ok: bool = False, **kwargs: Any) -> None:
    """Make a directory with its parents; `mode` and `exist_ok` concern local ones, a remote one may be there."""
    if not is_non_local(name):
        os.makedirs(os.path.expanduser(name.removeprefix("file://")), mode=mode, exist_ok=exist_ok)
        return
    filesystem, inner = fsspec.core.url_to_fs(name, **kwargs)
    filesystem.makedirs(inner, exist_ok=True)


def copy(src: str, dst: str, **kwargs: Any) -> bool:
    """Copy a file or a directory between any two places, as `cp -r` does: into `dst` where that is a directory.

    `kwargs` go to the remote side's file system. True once it is done; a `DataError` where it cannot be done.
    """
    try:
        source, source_path = fsspec.core.url_to_fs(src, **(kwargs if is_non_local(src) else {}))
        target, target_path = fsspec.core.url_to_fs(dst, **(kwargs if is_non_local(dst) else {}))
        directory = source.isdir(source_path)
        source_path = source_path.rstrip("/")
        if not is_non_local(src):
            target.put(source_path, target_path, recursive=directory)
        elif not is_non_local(dst):
            source.get(source_path, target_path, recursive=directory)
        else:
            with tempfile.TemporaryDirectory() as between:
                here = str(Path(between) / Path(source_path).name)
                source.get(source_path, here, recursive=directory)
                target.put(here, target_path, recursive=directory)
    except (OSError, ImportError, ValueError) as error:
        raise DataError(f"cannot be copied to {dst} ({error})", where=src) from error
    return True


def md5_encode(path: str) -> str:
    """Hex digest that names a path's copy; not a safety measure."""
    return hashlib.md5(path.encode(), usedforsecurity=False).hexdigest()


def get_local_temp_path(hdfs_path: str, cache_dir: str) -> str:
    """Where the copy of a remote path lives: `<cache>/<digest of the path>/<its last name>`."""
    return str(Path(cache_dir) / md5_encode(hdfs_path) / Path(hdfs_path.rstrip("/")).name)


def verify_copy(src: str, dest: str) -> bool:
    """Whether two files have one size, or two directories the same files with the same sizes."""
    return _sizes(Path(src)) == _sizes(Path(dest))


def copy_to_shm(src: str) -> str:
    """Copy a file or directory into this user's corner of /dev/shm, once; its path, or `src` where it does not fit."""
    size_bytes = sum(size for size in _sizes(Path(src)).values() if size)
    target = _own_cache(SHM_ROOT) / md5_encode(os.path.abspath(src)) / Path(src).name
    with _locked(target.parent):
        if target.exists() and verify_copy(src, str(target)):
            return str(target)
        free_bytes = shutil.disk_usage(SHM_ROOT).free
        if size_bytes > free_bytes:
            logger.warning(
                "%s needs %d bytes in %s, which has %d free; it is read from where it is",
                src,
                size_bytes,
                SHM_ROOT,
                free_bytes,
            )
            return src
        _copy_local(Path(src), target)
    return str(target)


def copy_to_local(
    src: str,
    cache_dir: str | None = None,
    filelock: str = ".file.lock",
    verbose: bool = False,
    always_recopy: bool = False,
    use_shm: bool = False,
) -> str:
    """A path on this machine for `src`.

    Local paths (with `~`) pass through, a name that is no path (a hub id) too; remote ones are copied to `cache_dir`.
    """
    local = copy_local_path_from_hdfs(src, cache_dir, filelock, verbose, always_recopy)
    return copy_to_shm(local) if use_shm and os.path.exists(local) else local


def copy_local_path_from_hdfs(
    src: str,
    cache_dir: str | None = None,
    filelock: str = ".file.lock",
    verbose: bool = False,
    always_recopy: bool = False,
) -> str:
    """Copy a remote path (any fsspec protocol) once; several processes share one copy under `filelock`."""
    if not is_non_local(src):
        return os.path.expanduser(src.removeprefix("file://"))
    target = Path(get_local_temp_path(src, cache_dir or str(_own_cache(Path(tempfile.gettempdir())))))
    with _locked(target.parent, filelock):
        if always_recopy and target.exists():
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        if not target.exists():
            (logger.info if verbose else logger.debug)("copying %s to %s", src, target)
            _fetch(src, target)
    return str(target)


def local_mkdir_safe(path: str | os.PathLike[str]) -> str:
    """Create a directory (with parents); several processes may do so at once."""
    Path(path).expanduser().mkdir(parents=True, exist_ok=True)
    return str(path)


def _own_cache(parent: Path) -> Path:
    """This user's directory below one that all users share: what others put there must not be read as a model."""
    cache = own_root(parent / f"verl-cache-{os.getuid()}")
    cache.mkdir(mode=0o700, exist_ok=True)
    return cache


def _fetch(src: str, target: Path) -> None:
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        filesystem, path = fsspec.core.url_to_fs(src)
        filesystem.get(path, str(part), recursive=filesystem.isdir(path))
    except (OSError, ImportError, ValueError) as error:
        raise DataError(f"the remote path cannot be copied ({error})", where=src) from error
    # Readers see the whole copy or none.
    part.rename(target)


def _copy_local(src: Path, target: Path) -> None:
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    if target.exists():
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    shutil.copytree(src, part) if src.is_dir() else shutil.copy2(src, part)
    part.rename(target)


@contextmanager
def _locked(directory: Path, name: str = ".file.lock") -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    what, whom = "copy to finish", f"the process that holds {directory / name}"
    with open(directory / name, "w") as handle:
        with waiting_on(what, whom, LOCK_DEADLINE_S):
            started_s = time.monotonic()
            while not _try_lock(handle.fileno()):
                if time.monotonic() - started_s > LOCK_DEADLINE_S:
                    raise expired(what, whom, LOCK_DEADLINE_S)
                time.sleep(0.05)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sizes(root: Path) -> dict[str, int | None]:
    """Relative path to size in bytes; None for a directory."""
    if not root.is_dir():
        return {"": root.stat().st_size}
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.stat().st_size for path in sorted(root.rglob("*"))
    }
