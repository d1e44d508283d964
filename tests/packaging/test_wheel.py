# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The wheel holds every file of the package."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(tmp_path: Path) -> Path:
    # From a copy: a build leaves build/ and egg-info behind.
    copy = tmp_path / "source"
    wanted = ("verl", "pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE", "MANIFEST.in")
    copy.mkdir()
    for name in wanted:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, copy / name)
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path / "dist"),
        str(copy),
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return tmp_path / "dist"


def check(dist: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "check_wheel.py"), str(dist), *options]
    # Where PyTorch's index cannot be reached pip need not ask it five times for each package.
    environ = {"PIP_RETRIES": "1", **os.environ}
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    result = check(build(tmp_path), "--no-install")
    assert result.returncode == 0, result.stderr


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_installed_wheel_imports_everything_and_composes_from_the_root_directory(tmp_path: Path) -> None:
    result = check(build(tmp_path))
    assert result.returncode == 0, result.stderr


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_in_an_empty_environment_the_documented_commands_lead_to_a_quick_start_that_resumes(tmp_path: Path) -> None:
    result = check(build(tmp_path), "--empty", "--quickstart")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "greedy accuracy" in result.stdout


def test_an_installation_from_git_has_every_file_of_the_commit(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    result = subprocess.run([*command, f"git+file://{ROOT}@{commit.strip()}"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("verl-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("verl/")}
    tree = ["git", "ls-tree", "-r", "--name-only", "HEAD", "verl"]
    committed = subprocess.run(tree, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in committed if not name.endswith((".md", ".gitignore"))} - packed == set()
