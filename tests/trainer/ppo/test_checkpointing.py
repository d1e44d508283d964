# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint is whole or absent, and resuming finds exactly the one that was published last."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verl.errors import CheckpointError, UnsupportedError
from verl.trainer.ppo.checkpointing import (
    STATE_FILE,
    TRACKER_FILE,
    TRAINER_FILE,
    CheckpointKeeper,
    find_resume_folder,
    folder_version,
    prune,
    publish_folder,
    read_rollout_state,
)


class Options(SimpleNamespace):
    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key, default)


def options(root: Path, **values: Any) -> Options:
    return Options(**{"default_local_dir": str(root), "resume_mode": "auto", "save_freq": 2} | values)


class FolderGroup:
    """A worker group that writes one file, or dies while it does."""

    def __init__(self, fail: bool = False) -> None:
        self.fail = fail
        self.loaded: list[str] = []

    def save_checkpoint(self, path: str, hdfs_path: Any, global_step: int, keep: Any) -> None:
        Path(path).mkdir()
        (Path(path) / "shard.pt").write_text(str(global_step))
        if self.fail:
            raise OSError("disk full")

    def load_checkpoint(self, path: str, hdfs_path: Any, delete: bool) -> None:
        self.loaded.append((Path(path) / "shard.pt").read_text())


def keeper(root: Path, group: FolderGroup, **values: Any) -> CheckpointKeeper:
    async def rollout_state() -> tuple[dict[str, Any], bytes]:
        return {"ledger": {"version": 2}}, b"loader"

    return CheckpointKeeper(options(root, **values), {"actor": group}, rollout_state, lambda: {"kl_coef": 0.5})


def test_a_saved_run_is_found_and_loaded_again(tmp_path: Path) -> None:
    saver = keeper(tmp_path, FolderGroup())
    assert asyncio.run(saver.maybe_save(1, step=4)) is None
    assert asyncio.run(saver.maybe_save(2, step=8)) is not None
    folder = find_resume_folder(options(tmp_path))
    assert folder == tmp_path / "global_step_2"
    group = FolderGroup()
    state = asyncio.run(keeper(tmp_path, group).load(folder))
    assert (group.loaded, state) == (["2"], {"optimizer_step": 8, "kl_coef": 0.5})
    assert read_rollout_state(folder) == ({"ledger": {"version": 2}}, b"loader")


@pytest.mark.parametrize("keep", [1, 2, None])
def test_a_save_that_fails_leaves_the_previous_checkpoint_in_place(tmp_path: Path, keep: int | None) -> None:
    limit = {"max_actor_ckpt_to_keep": keep}
    asyncio.run(keeper(tmp_path, FolderGroup(), **limit).maybe_save(2, step=8))
    with pytest.raises(OSError, match="disk full"):
        asyncio.run(keeper(tmp_path, FolderGroup(fail=True), **limit).maybe_save(4, step=16))
    assert (tmp_path / TRACKER_FILE).read_text().strip() == "2"
    assert find_resume_folder(options(tmp_path)) == tmp_path / "global_step_2"
    assert not (tmp_path / "global_step_4").exists()


def test_the_same_version_is_written_once(tmp_path: Path) -> None:
    saver = keeper(tmp_path, FolderGroup(), save_freq=3)
    assert asyncio.run(saver.maybe_save(6, step=6)) is not None
    assert asyncio.run(saver.maybe_save(6, step=6, final=True)) is None
    assert asyncio.run(saver.maybe_save(7, step=7, final=True)) is not None
    # The last steps of a run, behind its last version, are saved too; a resumed run does not write what it has read.
    assert asyncio.run(saver.maybe_save(7, step=9, final=True)) is not None
    again = keeper(tmp_path, FolderGroup(), save_freq=3)
    asyncio.run(again.load(tmp_path / "global_step_7"))
    assert asyncio.run(again.maybe_save(7, step=9, final=True)) is None


def test_versions_are_saved_at_multiples_and_at_the_end(tmp_path: Path) -> None:
    def saved(frequency: int | None) -> list[int]:
        saver = keeper(tmp_path / str(frequency), FolderGroup(), save_freq=frequency)
        versions = [v for v in range(1, 6) if asyncio.run(saver.maybe_save(v, step=v)) is not None]
        return versions + ([5] if asyncio.run(saver.maybe_save(5, step=5, final=True)) is not None else [])

    assert (saved(2), saved(5), saved(4)) == ([2, 4, 5], [5], [4, 5])
    assert saved(-1) == saved(0) == saved(None) == []


def test_a_checkpoint_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    asyncio.run(keeper(tmp_path, FolderGroup()).maybe_save(2, step=8))
    with pytest.raises(OSError, match="disk full"):
        asyncio.run(keeper(tmp_path, FolderGroup(fail=True)).save(2, step=9))
    folder = find_resume_folder(options(tmp_path))
    assert json.loads((folder / TRAINER_FILE).read_text())["optimizer_step"] == 8
    asyncio.run(keeper(tmp_path, FolderGroup()).save(2, step=9))
    assert json.loads((folder / TRAINER_FILE).read_text())["optimizer_step"] == 9
    # What the failed save left is gone, and the checkpoint that was replaced too.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_2", TRACKER_FILE]


@pytest.mark.parametrize(("keep", "left"), [(1, ["4"]), (2, ["3", "4"]), (9, ["1", "2", "3", "4"])])
def test_the_newest_stay(tmp_path: Path, keep: int, left: list[str]) -> None:
    saver = keeper(tmp_path, FolderGroup(), save_freq=1, max_actor_ckpt_to_keep=keep)
    for version in range(1, 5):
        asyncio.run(saver.maybe_save(version, step=version))
    assert sorted(path.name for path in tmp_path.glob("global_step_*")) == [f"global_step_{v}" for v in left]


@pytest.mark.parametrize("keep", [None, 0, -1])
def test_without_a_number_to_keep_nothing_is_deleted(tmp_path: Path, keep: int | None) -> None:
    saver = keeper(tmp_path, FolderGroup(), save_freq=1, max_actor_ckpt_to_keep=keep)
    for version in range(1, 4):
        asyncio.run(saver.maybe_save(version, step=version))
    assert len(list(tmp_path.glob("global_step_*"))) == 3


@pytest.mark.parametrize(
    ("given", "version"),
    [("e/global_step_900/a/global_step_12", 12), ("global_step_12/", 12), ("x y/global_step_3", 3)],
)
def test_the_step_is_read_from_the_last_component_of_a_path(
    tmp_path: Path, given: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / given).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for path in (given, str(tmp_path / given)):
        found = find_resume_folder(options(tmp_path, resume_mode="resume_path", resume_from_path=path))
        assert (folder_version(found), found) == (version, (tmp_path / given).resolve())


@pytest.mark.parametrize("given", ["global_step_37/actor", "global_step_x", "global_step_1_2", ""])
def test_a_path_that_does_not_end_in_a_step_is_refused(tmp_path: Path, given: str) -> None:
    (tmp_path / given).mkdir(parents=True, exist_ok=True)
    with pytest.raises(CheckpointError, match="resume_from_path"):
        find_resume_folder(options(tmp_path, resume_mode="resume_path", resume_from_path=str(tmp_path / given)))


def test_without_a_save_frequency_nothing_is_written(tmp_path: Path) -> None:
    saver = keeper(tmp_path, FolderGroup(), save_freq=-1)
    assert asyncio.run(saver.maybe_save(6, step=6, final=True)) is None
    assert list(tmp_path.iterdir()) == []


def test_pruning_keeps_the_newest_and_the_one_the_tracker_names(tmp_path: Path) -> None:
    for version in (2, 4, 10):
        draft = tmp_path / "draft"
        draft.mkdir()
        publish_folder(draft, tmp_path / f"global_step_{version}")
    (tmp_path / TRACKER_FILE).write_text("2")
    prune(tmp_path, keep=1)
    assert sorted(path.name for path in tmp_path.glob("global_step_*")) == ["global_step_10", "global_step_2"]


def test_a_fresh_directory_starts_fresh_and_disable_ignores_what_is_there(tmp_path: Path) -> None:
    assert find_resume_folder(options(tmp_path)) is None
    (tmp_path / TRACKER_FILE).write_text("7")
    assert find_resume_folder(options(tmp_path, resume_mode="disable")) is None


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({}, CheckpointError, "global_step_7"),
        ({"resume_mode": "resume_path", "resume_from_path": "/nowhere"}, CheckpointError, "trainer.resume_from_path"),
        ({"default_hdfs_dir": "hdfs://x"}, UnsupportedError, "trainer.default_hdfs_dir"),
    ],
)
def test_what_cannot_be_resumed_says_why(tmp_path: Path, values: dict[str, Any], error: type, words: str) -> None:
    (tmp_path / TRACKER_FILE).write_text("7")
    with pytest.raises(error, match=words):
        find_resume_folder(options(tmp_path, **values))


def test_a_tracker_that_holds_no_number_is_named(tmp_path: Path) -> None:
    (tmp_path / TRACKER_FILE).write_text("")
    with pytest.raises(CheckpointError, match=TRACKER_FILE):
        find_resume_folder(options(tmp_path))


def test_a_folder_of_another_program_is_refused_with_the_road_out(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_3"
    (folder / "actor").mkdir(parents=True)
    (folder / "actor" / "shard.pt").write_text("3")
    with pytest.raises(CheckpointError, match="model_merger"):
        asyncio.run(keeper(tmp_path, FolderGroup()).load(folder))
    (folder / TRAINER_FILE).write_text(json.dumps({"optimizer_step": 1}))
    with pytest.raises(CheckpointError, match=STATE_FILE):
        read_rollout_state(folder)
