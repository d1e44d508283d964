# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Run directories: private, one for each job, and nobody else's directory is touched."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from verl.errors import TransportError
from verl.launch_info import JOB_ID_ENV, RUN_DIR_ENV, LaunchInfo, own_root


@pytest.fixture
def shared_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for everybody, as /tmp is."""
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv(RUN_DIR_ENV, raising=False)
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_each_job_has_a_private_directory_of_its_own(shared_tmp: Path) -> None:
    one, two = LaunchInfo.new(), LaunchInfo.new()
    for info in (one, two):
        assert info.ensure_run_dir() == info.run_dir and mode(info.run_dir) == mode(info.run_dir.parent) == 0o700
    assert one.run_dir != two.run_dir and one.run_dir.parent == two.run_dir.parent == shared_tmp / f"verl-{os.getuid()}"


@pytest.mark.parametrize("kind", ["file", "link", "somebody else's"])
def test_a_name_that_is_taken_is_gone_round(
    shared_tmp: Path, kind: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = shared_tmp / f"verl-{os.getuid()}"
    if kind == "file":
        taken.touch(mode=0o600)
    elif kind == "link":
        taken.symlink_to(tmp_path_factory.mktemp("elsewhere"))
    else:
        taken.mkdir()
        # What another uid looks like from here.
        uid = os.getuid()
        taken = taken.rename(shared_tmp / f"verl-{uid + 1}")
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    info = LaunchInfo.new()
    monkeypatch.setenv(JOB_ID_ENV, info.job_id)
    assert LaunchInfo.from_env() == info and own_root(taken) == info.run_dir.parent
    assert info.run_dir.parent not in (taken, shared_tmp) and info.run_dir.parent.parent == shared_tmp
    if kind != "somebody else's":
        assert mode(info.ensure_run_dir()) == 0o700 and mode(info.run_dir.parent) == 0o700


def test_a_directory_that_the_user_names_does_not_close_the_one_it_is_in(shared_tmp: Path) -> None:
    info = LaunchInfo("job", shared_tmp / "mine")
    info.ensure_run_dir()
    assert mode(shared_tmp / "mine") == 0o700 and mode(shared_tmp) == 0o1777


def test_a_run_directory_of_somebody_else_is_refused(shared_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shared_tmp / "theirs").mkdir()
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(TransportError, match=rf"theirs.*belongs to somebody else.*got .uid {uid}.*{RUN_DIR_ENV}"):
        LaunchInfo("job", shared_tmp / "theirs").ensure_run_dir()
