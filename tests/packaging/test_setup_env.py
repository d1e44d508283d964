# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`tools/setup_env.py` with real pip and a real virtual environment, on package indexes that lie in a folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BACKEND = """
import zipfile
def build_editable(directory, config_settings=None, metadata_directory=None):
    name = "verl-0.0.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        info = "verl-0.0.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: verl\\nVersion: 0.0.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""


def add_wheel(index: Path, name: str, version: str) -> None:
    folder = index / name
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    file = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(folder / file, "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    with (folder / "index.html").open("a") as page:
        page.write(f'<a href="{file.replace("+", "%2B")}">{file}</a>\n')


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, a lock, an index without the CPU build of torch, and PyTorch's index with it."""
    place = tmp_path_factory.mktemp("setup")
    add_wheel(place / "main", "torch", "2.13.0")
    add_wheel(place / "main", "small", "1.0")
    add_wheel(place / "main", "small", "2.0")
    add_wheel(place / "main", "torchvision", "0.1")
    add_wheel(place / "pytorch", "torch", "2.13.0+cpu")
    project = place / "project"
    project.mkdir()
    (project / "backend.py").write_text(BACKEND)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (place / "lock").write_text("# comment\nsmall==1.0\ntorch==2.13.0+cpu\n")
    return place


def set_up(place: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"file://{place}/main"}
    command = [sys.executable, str(ROOT / "tools" / "setup_env.py"), "--venv", str(place / "venv")]
    command += ["--lock", str(place / "lock"), "--project", str(place / "project")]
    return subprocess.run(
        [*command, "--torch-index", f"file://{place}/pytorch"], env=environment, capture_output=True, text=True
    )


def installed(place: Path) -> dict[str, str]:
    code = "import importlib.metadata as m\nfor d in m.distributions(): print(d.metadata['Name'], d.version)"
    output = subprocess.run([place / "venv" / "bin" / "python", "-c", code], capture_output=True, text=True).stdout
    return dict(line.split() for line in output.splitlines())


def test_the_environment_is_made_once_mended_when_the_lock_changes_and_guarded(place: Path) -> None:
    first = set_up(place)
    assert first.returncode == 0, first.stderr
    assert f"have no torch==2.13.0+cpu; taking it from file://{place}/pytorch" in first.stderr
    assert "WARNING" not in first.stderr and first.stdout == ""
    assert {"small": "1.0", "torch": "2.13.0+cpu", "verl": "0.0.0"}.items() <= installed(place).items()

    again = set_up(place)
    assert (again.returncode, again.stderr) == (0, "")

    (place / "lock").write_text("small==2.0\ntorch==2.13.0+cpu\n")
    assert set_up(place).returncode == 0
    assert installed(place)["small"] == "2.0"

    (place / "lock").write_text("small==2.0\ntorchvision==0.1\ntorch==2.13.0+cpu\n")
    refused = set_up(place)
    assert refused.returncode == 1
    assert "torchvision beside torch +cpu breaks" in refused.stderr and "pip uninstall -y torchvision" in refused.stderr


def test_a_package_that_no_index_has_is_an_error_with_the_command(place: Path, tmp_path: Path) -> None:
    original = (place / "lock").read_text()
    (place / "lock").write_text("nowhere==1.0\n")
    result = set_up(place)
    (place / "lock").write_text(original)
    assert result.returncode == 1
    assert "nowhere==1.0" in result.stderr and "the locked packages could not be installed" in result.stderr


def test_make_keeps_the_interpreter_of_the_environment_that_is_there(tmp_path: Path) -> None:
    def told(*arguments: str) -> str:
        # Not as a part of the make that may run these tests.
        alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        command = ["make", "-n", "-f", str(ROOT / "Makefile"), "setup", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=True).stdout

    assert ".venv" not in told()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(tmp_path / "an interpreter that was removed")
    assert ".venv" not in told(), "it can make nothing"
    (tmp_path / ".venv" / "bin" / "python").unlink()
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    assert told() == ".venv/bin/python tools/setup_env.py\n"
    assert told("PYTHON=python3.12") == "python3.12 tools/setup_env.py\n"
