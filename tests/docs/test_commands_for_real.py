# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The command blocks of the start pages, run by the real make, python and pip in fresh clones of this commit.

What is left out, and why, stands in tests/helpers/command_blocks.py. Run by `make test-long`; takes about an
hour, and needs the package indexes.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_blocks import BLOCKS, ROOT, Block

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
TORCH = ("torch==2.13.0+cpu", "--extra-index-url", "https://download.pytorch.org/whl/cpu")
VERSIONS = """
import importlib.metadata as m, verl
print(verl.__version__, verl.__file__, m.version("torch"))
"""


def clone(place: Path) -> Path:
    """This commit's files, as somebody gets them."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    subprocess.run(["git", "clone", "-q", str(ROOT), str(place)], check=True)
    return place


def run(commands: list[str], checkout: Path, environment: str = ".venv") -> str:
    """What bash and the commands print, with this environment of the checkout active; they must succeed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    here = str(Path(sys.executable).parent)
    path = [part for part in os.environ["PATH"].split(os.pathsep) if part != here]
    environ = {
        **inherited,
        "PATH": os.pathsep.join([str(checkout / environment / "bin"), *path]),
        "VERL_HOME": str(checkout.parent / "home"),
        # Where PyTorch's index cannot be reached pip need not ask it five times for each package.
        "PIP_RETRIES": "1",
    }
    script = "set -euo pipefail\n" + "\n".join(commands)
    done = subprocess.run(["bash", "-c", script], cwd=checkout, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One clone for all blocks that use what `make` sets up."""
    place = tmp_path_factory.mktemp("real")
    yield clone(place / "checkout")
    # An environment takes three gigabytes, and pytest keeps what three runs left.
    shutil.rmtree(place)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory that goes away with the environments in it."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def makes_an_environment(block: Block) -> bool:
    return any("-m venv" in command for command in block.commands())


def those(wanted: bool) -> list[Block]:
    """Blocks with something to run, with or without an environment of their own; each text once."""
    found = {tuple(block.commands_to_run()): block for block in BLOCKS if block.page != "docs/hardware/cuda.md"}
    return [block for commands, block in found.items() if commands and makes_an_environment(block) == wanted]


@pytest.mark.parametrize("block", those(False), ids=str)
def test_a_block_runs_in_a_fresh_clone(block: Block, checkout: Path) -> None:
    commands = block.commands_to_run()
    if not any(command.startswith("make") for command in commands):
        commands = ["make setup", *commands]
    told = run(commands, checkout)
    started = sum("quickstart" in command for command in commands)
    assert told.count("greedy accuracy") == started, told
    status = subprocess.run(["git", "status", "--short"], cwd=checkout, capture_output=True, text=True, check=True)
    assert status.stdout == "", "a command changed the checkout"


@pytest.mark.parametrize("block", those(True), ids=str)
def test_a_block_makes_an_environment_that_holds_together(block: Block, place: Path) -> None:
    checkout = clone(place / "checkout")
    if "dist/" in block.text:
        # What the page says of the wheel: `make release` leaves it in dist/.
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(checkout / "dist"), "."]
        subprocess.run(command, cwd=clone(place / "source"), check=True, capture_output=True)
    run(block.commands_to_run(), checkout)
    checked = run([f"PYTHON={checkout}/.venv/bin/python bash docker/scripts/check.sh"], checkout)
    assert "torch 2.13.0+cpu" in checked and "the configuration composes" in checked
    assert run(["python -c 'import transformers, vllm; print(vllm.__version__)'"], checkout).startswith("0.32.0")


def test_the_block_for_an_image_adds_the_package_to_what_is_there(place: Path) -> None:
    (block,) = [block for block in BLOCKS if block.page == "docs/hardware/cuda.md"]
    checkout = clone(place / "checkout")
    image = place / "image"
    subprocess.run(["python3.11", "-m", "venv", str(image)], check=True)
    # An image has torch; the tool that names what is missing reads requirements by `packaging`, which vLLM brings.
    run([f"pip install -q packaging {' '.join(TORCH)}"], checkout, "../image")
    assert block.commands_to_run() == block.commands()
    run(block.commands_to_run(), checkout, "../image")
    version, file, torch = run([f"cd / && python -c '{VERSIONS}'"], checkout, "../image").split()
    assert torch == "2.13.0+cpu" and file == str(checkout / "verl" / "__init__.py") and version
    assert run(["python tools/missing_requirements.py"], checkout, "../image") == ""
