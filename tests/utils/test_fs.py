# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Local paths pass through, remote ones are copied once."""

import os
import shutil
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from verl.errors import DataError, WaitTimeout
from verl.utils import fs


@pytest.fixture
def remote() -> str:
    """A directory on fsspec's in-memory file system."""
    memory = fsspec.filesystem("memory")
    memory.mkdirs("/model/sub", exist_ok=True)
    memory.pipe("/model/config.json", b"{}")
    memory.pipe("/model/sub/weights", b"123")
    return "memory://model"


def test_local_paths_and_hub_names_pass_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fs.copy_to_local("~/model") == str(tmp_path / "model")
    assert fs.copy_to_local("Qwen/Qwen2.5-0.5B") == "Qwen/Qwen2.5-0.5B"
    assert fs.copy_to_local(f"file://{tmp_path}") == str(tmp_path)
    assert fs.is_non_local("s3://a/b") and not fs.is_non_local("/a/b")


def test_a_remote_directory_is_copied_once_by_however_many(remote: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        paths = set(threads.map(lambda _: fs.copy_to_local(remote, cache_dir=str(tmp_path)), range(4)))
    assert paths == {fs.get_local_temp_path(remote, str(tmp_path))}
    local = Path(paths.pop())
    assert (local / "sub" / "weights").read_bytes() == b"123"
    (local / "config.json").write_text("mine")
    assert (Path(fs.copy_to_local(remote, cache_dir=str(tmp_path))) / "config.json").read_text() == "mine"
    again = Path(fs.copy_to_local(remote, cache_dir=str(tmp_path), always_recopy=True))
    assert (again / "config.json").read_text() == "{}"
    with pytest.raises(DataError, match="memory://absent"):
        fs.copy_to_local("memory://absent/x", cache_dir=str(tmp_path))


@pytest.mark.parametrize("place", ["disk", "shared memory"])
@pytest.mark.parametrize("kind", ["file", "somebody else's"])
def test_a_cache_that_another_user_has_put_there_is_not_read(
    place: str, kind: str, remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fs, "SHM_ROOT", tmp_path)
    monkeypatch.setenv("VERL_JOB_ID", "cafe")
    source = fs.copy_to_local(remote, cache_dir=str(tmp_path / "downloads"))

    def copy() -> Path:
        return Path(fs.copy_to_local(remote) if place == "disk" else fs.copy_to_shm(source))

    first, uid = copy(), os.getuid()
    cache = tmp_path / f"verl-cache-{uid}"
    assert first.is_relative_to(cache) and stat.S_IMODE(cache.stat().st_mode) == 0o700
    if kind == "file":
        shutil.rmtree(cache)
        cache.touch(mode=0o600)
    else:
        # What another uid looks like from here; its copy has weights of its own.
        (first / "config.json").write_text("theirs")
        cache.rename(tmp_path / f"verl-cache-{uid + 1}")
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    second = copy()
    assert second.is_relative_to(tmp_path / f"verl-cache-{os.getuid()}-cafe")
    assert (second / "config.json").read_text() == "{}"


def test_a_copy_in_shared_memory_is_renewed_when_the_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fs, "SHM_ROOT", tmp_path / "shm")
    (tmp_path / "shm").mkdir()
    source = tmp_path / "model"
    source.mkdir()
    (source / "a").write_text("one")
    copy = fs.copy_to_local(str(source), use_shm=True)
    assert copy.startswith(str(tmp_path / "shm")) and fs.verify_copy(str(source), copy)
    (source / "a").write_text("three")
    assert Path(fs.copy_to_local(str(source), use_shm=True), "a").read_text() == "three"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    (source / "a").write_text("fourth")
    assert fs.copy_to_local(str(source), use_shm=True) == str(source)


def test_a_lock_that_is_never_given_back_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fs, "LOCK_DEADLINE_S", 0.2)
    with fs._locked(tmp_path), pytest.raises(WaitTimeout, match=r"\.file\.lock"):
        with fs._locked(tmp_path):
            pass


def test_directories_are_made_and_seen_near_and_far(tmp_path: Path) -> None:
    near, far = tmp_path / "a" / "b", "memory://made/here"
    assert not fs.exists(str(near)) and not fs.exists(far)
    fs.makedirs(str(near))
    fs.makedirs(far)
    fs.makedirs(far)
    assert fs.exists(str(near)) and fs.exists(path=far)
    with pytest.raises(FileExistsError):
        fs.makedirs(str(near))
    fs.makedirs(name=str(near), exist_ok=True)


@pytest.mark.parametrize("far", [False, True])
def test_a_directory_is_copied_into_one_that_is_there(far: bool, remote: str, tmp_path: Path) -> None:
    source = tmp_path / "model"
    shutil.copytree(fs.copy_to_local(remote, cache_dir=str(tmp_path / "cache")), source)
    target = "memory://backups" if far else str(tmp_path / "backups")
    fs.makedirs(target)
    assert fs.copy(src=str(source), dst=target) is True
    assert fs.exists(f"{target}/model/sub/weights")


def test_a_directory_that_is_not_there_becomes_the_copy(remote: str, tmp_path: Path) -> None:
    assert fs.copy(remote, str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "sub" / "weights").read_bytes() == b"123"
    assert fs.copy(remote, "memory://elsewhere")
    assert fs.exists("memory://elsewhere/config.json")


def test_a_file_is_copied_to_a_name_or_into_a_directory(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"rows")
    (tmp_path / "data").mkdir()
    fs.copy(str(tmp_path / "rows.parquet"), str(tmp_path / "copy.parquet"))
    fs.copy(str(tmp_path / "rows.parquet"), str(tmp_path / "data"))
    assert (tmp_path / "copy.parquet").read_bytes() == (tmp_path / "data" / "rows.parquet").read_bytes() == b"rows"


def test_what_cannot_be_copied_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing"):
        fs.copy(str(tmp_path / "missing"), str(tmp_path / "there"))
