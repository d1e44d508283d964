# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Save and resume, once for every trainer.

A checkpoint is one folder `global_step_<version>`: worker shards, the rollout's ledger and loader state. It is written
beside its final name, published by one rename, and only then does the tracker file point to it, so that a kill at any
moment leaves the previous checkpoint whole.
"""

import asyncio
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from verl.errors import CheckpointError, UnsupportedError
from verl.utils.trace import span

logger = logging.getLogger(__name__)

TRACKER_FILE = "latest_checkpointed_iteration.txt"
STATE_FILE = "rollout_state.json"
TRAINER_FILE = "trainer_state.json"
_FOLDER = re.compile(r"^global_step_(\d+)$")


def checkpoint_folder(root: Path, version: int) -> Path:
    """`<default_local_dir>/global_step_<version>`."""
    return root / f"global_step_{version}"


def find_resume_folder(trainer_config: Any) -> Path | None:
    """The checkpoint to resume from by `trainer.resume_mode`, or None to start fresh.

    Raises
    ------
    CheckpointError : an explicit path that is no checkpoint, or a tracker that points to a missing folder.
    """
    mode = trainer_config.resume_mode
    if mode == "disable":
        return None
    if trainer_config.get("default_hdfs_dir"):
        raise UnsupportedError(
            "resuming from HDFS",
            where="trainer.default_hdfs_dir",
            remedy="copy the checkpoint to trainer.default_local_dir and unset trainer.default_hdfs_dir",
        )
    if mode == "resume_path":
        folder = Path(str(trainer_config.resume_from_path)).expanduser().resolve()
        if not _FOLDER.match(folder.name) or not folder.is_dir():
            raise CheckpointError(
                "not a checkpoint folder",
                where="trainer.resume_from_path",
                got=str(trainer_config.resume_from_path),
                expected="an existing folder named global_step_<number>",
            )
        return folder
    tracker = Path(trainer_config.default_local_dir) / TRACKER_FILE
    if not tracker.exists():
        return None
    text = tracker.read_text().strip()
    if not text.isdigit():
        raise CheckpointError("the tracker file holds no step", where=str(tracker), got=text, expected="a number")
    folder = checkpoint_folder(tracker.parent, int(text))
    if not folder.is_dir():
        raise CheckpointError(
            "the checkpoint that the tracker names is missing",
            where=str(folder),
            remedy=f"write the number of an existing global_step folder into {tracker}, or delete it to start afresh",
        )
    return folder


def folder_version(folder: Path) -> int:
    """The version in a checkpoint folder's name."""
    match = _FOLDER.match(folder.name)
    if match is None:
        raise CheckpointError("not a checkpoint folder", got=folder.name, expected="global_step_<number>")
    return int(match.group(1))


def publish_folder(draft: Path, final: Path) -> None:
    """Give a complete draft its name, then move the tracker; both by rename, so that each is whole or not at all.

    A checkpoint that had the name before is deleted last.
    """
    aside = final.with_name(f".old_{final.name}")
    shutil.rmtree(aside, ignore_errors=True)
    if final.exists():
        os.replace(final, aside)
    os.replace(draft, final)
    tracker = final.parent / TRACKER_FILE
    fresh = tracker.with_suffix(f".{os.getpid()}")
    fresh.write_text(str(folder_version(final)))
    os.replace(fresh, tracker)
    shutil.rmtree(aside, ignore_errors=True)


def prune(root: Path, keep: int | None) -> None:
    """Delete the oldest checkpoints beyond `keep`; never the one the tracker names."""
    if not keep or keep < 1:
        return
    folders = sorted((path for path in root.iterdir() if _FOLDER.match(path.name)), key=folder_version)
    tracker = root / TRACKER_FILE
    named = tracker.read_text().strip() if tracker.exists() else ""
    for folder in folders[:-keep]:
        if str(folder_version(folder)) != named:
            shutil.rmtree(folder)


class CheckpointKeeper:
    """Saves every `save_freq` versions and at the end.

    Parameters
    ----------
    groups : folder name → worker group ("actor", "critic").
    rollout_state : coroutine that returns (plain state, loader state bytes) of the rollout at this moment.
    trainer_state : plain state of the trainer itself (optimizer step, KL coefficient …).
    """

    def __init__(
        self,
        config: Any,
        groups: dict[str, Any],
        rollout_state: Callable[[], Awaitable[tuple[dict[str, Any], bytes]]],
        trainer_state: Callable[[], dict[str, Any]],
    ) -> None:
        self.config = config
        self.groups = groups
        self.rollout_state = rollout_state
        self.trainer_state = trainer_state
        self.root = Path(config.default_local_dir)
        # Version and step: the last steps of a run may belong to a version that was saved before them.
        self.last_saved: tuple[int, int] | None = None

    async def maybe_save(self, version: int, step: int, *, final: bool = False) -> float | None:
        """Save if it is time; returns the seconds it took, or None."""
        frequency = self.config.save_freq or 0
        if frequency <= 0 or not (final or version % frequency == 0) or (version, step) == self.last_saved:
            return None
        start = time.monotonic()
        with span("save_checkpoint", version=version):
            await self.save(version, step)
        return time.monotonic() - start

    async def save(self, version: int, step: int) -> None:
        """Write the checkpoint of `version` now."""
        final = checkpoint_folder(self.root, version)
        # Drafts of a save that failed or was killed; no other job writes here (see the run lock).
        for left_over in self.root.glob(".draft_*"):
            shutil.rmtree(left_over, ignore_errors=True)
        draft = self.root / f".draft_{version}_{os.getpid()}"
        draft.mkdir(parents=True)
        state, loader = await self.rollout_state()
        for name, group in self.groups.items():
            await asyncio.to_thread(group.save_checkpoint, str(draft / name), None, version, None)
        (draft / "data.pt").write_bytes(loader)
        (draft / STATE_FILE).write_text(json.dumps(state, indent=1))
        (draft / TRAINER_FILE).write_text(json.dumps({"optimizer_step": step, **self.trainer_state()}, indent=1))
        await asyncio.to_thread(publish_folder, draft, final)
        await asyncio.to_thread(prune, self.root, self.config.get("max_actor_ckpt_to_keep"))
        self.last_saved = (version, step)
        logger.info("checkpoint %s", final)

    async def load(self, folder: Path) -> dict[str, Any]:
        """Load the worker shards of `folder`; returns the trainer state it holds."""
        for name, group in self.groups.items():
            if not (folder / name).is_dir():
                raise CheckpointError("the checkpoint has no shards of this role", where=str(folder / name))
            delete = bool(self.config.get("del_local_ckpt_after_load"))
            await asyncio.to_thread(group.load_checkpoint, str(folder / name), None, delete)
        path = folder / TRAINER_FILE
        if not path.exists():
            raise CheckpointError(
                "the checkpoint was not written by this package's trainer",
                where=str(path),
                remedy="export the weights with `python -m verl.model_merger merge` and start from them",
            )
        state = json.loads(path.read_text())
        self.last_saved = (folder_version(folder), int(state["optimizer_step"]))
        return state


def read_rollout_state(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The rollout's plain state and loader bytes of a checkpoint."""
    try:
        return json.loads((folder / STATE_FILE).read_text()), (folder / "data.pt").read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError("the checkpoint is incomplete", where=str(error.filename)) from error
