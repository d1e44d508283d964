# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a quick start needs before it runs, made once for each user and each version of the recipe."""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from verl.errors import VerlError, WaitTimeout
from verl.quickstart.task import HELD_OUT_FILE, TRAIN_FILE, write_parquet
from verl.waits import expired

logger = logging.getLogger(__name__)

FACTS_FILE = "base.json"
# A warm start takes half a minute alone; somebody else's, on a busy machine, may take much longer.
LOCK_DEADLINE_S = 1800.0
# A base that no run has asked for in so long is not worth its place; it takes half a minute to make again.
UNUSED_S = 7 * 86400
# The files that decide what the base model is: a change in one makes a new base.
_RECIPE_FILES = ("model.py", "task.py", "warm_start.py", "evaluate.py")


@dataclass(frozen=True)
class Prepared:
    """Base model, data files, and the facts of the warm start (`greedy`, `sampled`, `seed`, `steps`).

    `held` is the base's directory, open under a lock: as long as this process lives, nobody removes it.
    """

    model: Path
    train: Path
    held_out: Path
    facts: dict[str, Any]
    held: int | None = None


def prepare(home: Path) -> Prepared:
    """The base model and the data below `home`/quickstart; made under a lock and renamed into place, or found there.

    Bases of other recipes that no run uses, and that none has asked for in `UNUSED_S`, are removed.
    """
    root = home / "quickstart"
    model = root / f"base-{recipe_digest()}"
    data = root / "data"
    held = _make_and_hold(model)
    _make(data, lambda draft: write_parquet(draft), "the data set")
    for base in root.glob("base-*"):
        if base != model and base.is_dir():
            _remove_unused(base)
    facts = json.loads((model / FACTS_FILE).read_text())
    return Prepared(model, data / TRAIN_FILE, data / HELD_OUT_FILE, facts, held)


def _make_and_hold(model: Path) -> int:
    end = time.monotonic() + LOCK_DEADLINE_S
    while time.monotonic() < end:
        _make(model, lambda draft: _run_warm_start(draft), "the base model")
        if (held := _hold(model)) is not None:
            return held
        # Somebody removes it at this moment: it had not been asked for in a week.
        time.sleep(0.05)
    raise expired("the base model", f"whoever removes {model}", LOCK_DEADLINE_S)


def recipe_digest() -> str:
    """Eight digits that change with the recipe."""
    here = Path(__file__).parent
    return hashlib.sha256(b"\0".join((here / name).read_bytes() for name in _RECIPE_FILES)).hexdigest()[:8]


def _make(target: Path, build: Callable[[Path], Any], what: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        return
    with _locked(target.with_name(target.name + ".lock"), what):
        if target.exists():
            return
        draft = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
        try:
            build(draft)
            draft.chmod(0o755)
            try:
                draft.rename(target)
            except OSError:
                # The lock's file goes with an unused base: then two may have made it anew.
                if not target.exists():
                    raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _hold(directory: Path) -> int | None:
    """Open a directory under a shared lock and mark it as used; None where it is going or has gone."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    with contextlib.suppress(FileNotFoundError, BlockingIOError):
        # Somebody who removes it holds the lock for the moment of a rename.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(directory), os.fstat(descriptor)):
            os.utime(directory)
            return descriptor
    os.close(descriptor)
    return None


def _remove_unused(base: Path) -> None:
    """Remove a base, or what a killed start has left of one, unless a run holds it or it was used in `UNUSED_S`."""
    try:
        if time.time() - base.stat().st_mtime < UNUSED_S:
            # Runs of earlier versions hold no lock; none of them is that old.
            return
        descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = base.with_name(f"{base.name}.gone-{os.getpid()}")
        base.rename(gone)
    except OSError as error:
        logger.debug("%s stays: %s", base, error)
        return
    finally:
        os.close(descriptor)
    base.with_name(f"{base.name}.lock").unlink(missing_ok=True)
    shutil.rmtree(gone, ignore_errors=True)
    logger.info("removed %s, which no run has used for %d days", base, UNUSED_S // 86400)


@contextmanager
def _locked(path: Path, what: str) -> Iterator[None]:
    lock = FileLock(path)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.info("another quick start is making %s; waiting for it", what)
            lock.acquire(timeout=LOCK_DEADLINE_S)
    except Timeout as error:
        raise WaitTimeout(
            f"{what} was not finished by the process that holds the lock within {LOCK_DEADLINE_S:.0f} s",
            where=str(path),
        ) from error
    try:
        yield
    finally:
        lock.release()


def _run_warm_start(directory: Path) -> None:
    # In a process of its own: this one lives as long as the run and must stay small.
    logger.info("making the base model (once; about a minute)")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", "verl.quickstart.warm_start", str(directory)]
    if subprocess.run(command, env=environment).returncode != 0:
        raise VerlError("the warm start failed", where=" ".join(command), remedy="its own message is above")
