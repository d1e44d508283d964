# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Make `.venv` hold exactly what `requirements/cpu.lock` says, and this checkout in editable form.

Standard library only: it runs before anything is installed. A second run with nothing changed does nothing.
"""

import argparse
import fcntl
import hashlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "cpu.lock"
STAMP = "verl-setup"
# Where PyTorch publishes its CPU builds; only asked when the configured indexes have none.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# Built against a CUDA torch on the common indexes: beside torch +cpu they break `import transformers`.
MUST_STAY_OUT = ("torchvision", "torchaudio", "torchcodec")
SUPPORTED = ((3, 11), (3, 12))


class SetupError(Exception):
    """A sentence for the person at the terminal."""


def main(arguments: list[str] | None = None) -> int:
    """Bring the environment up to date; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--lock", type=Path, default=LOCK)
    parser.add_argument("--project", type=Path, default=ROOT)
    parser.add_argument("--torch-index", default=TORCH_CPU_INDEX)
    options = parser.parse_args(arguments)
    try:
        # Two `make` at once in one checkout: the second waits, then finds the work done.
        with options.lock.open() as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            set_up(options.venv, options.lock, options.project, options.torch_index)
    except SetupError as error:
        say(f"{error}")
        return 1
    return 0


def set_up(venv: Path, lock: Path, project: Path, torch_index: str) -> None:
    """Create or mend `venv`; leaves a stamp, so that the next call is quick."""
    check_machine()
    stamp = venv / STAMP
    wanted = fingerprint(lock, project)
    if stamp.exists() and stamp.read_text() == wanted and (venv / "bin" / "python").exists():
        return
    stamp.unlink(missing_ok=True)
    start_s = time.monotonic()
    if not (venv / "bin" / "python").exists():
        say(f"creating {venv} with Python {platform.python_version()}")
        run([sys.executable, "-m", "venv", str(venv)], "the virtual environment could not be created")
    python = str(venv / "bin" / "python")
    requirements = read_lock(lock)
    say(f"installing {len(requirements)} pinned packages (about two minutes the first time)")
    install_torch(python, [line for line in requirements if line.startswith("torch==")], torch_index)
    pip(python, ["--no-deps", "-r", str(lock)], "the locked packages could not be installed")
    check_packages(python)
    pip(python, ["--no-deps", "--no-build-isolation", "-e", str(project)], "this checkout could not be installed")
    stamp.write_text(wanted)
    say(f"{venv} is ready ({time.monotonic() - start_s:.0f} s)")


def check_machine() -> None:
    """Refuse, in a sentence, a machine that the lock was not made for."""
    if sys.version_info[:2] not in SUPPORTED:
        raise SetupError(
            f"Python {platform.python_version()} is not supported; use 3.11 or 3.12: `make setup PYTHON=python3.11`"
        )
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SetupError(f"the lock is for Linux x86-64, and this is {platform.system()} {platform.machine()}")


def read_lock(lock: Path) -> list[str]:
    """The requirement lines of the lock."""
    return [line.strip() for line in lock.read_text().splitlines() if line.strip() and not line.startswith("#")]


def fingerprint(lock: Path, project: Path) -> str:
    """Changes when the lock, the project's metadata, the interpreter or this script does."""
    parts = [lock.read_bytes(), (project / "pyproject.toml").read_bytes(), Path(__file__).read_bytes()]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
    return f"{digest} {platform.python_version()} {project}\n"


def install_torch(python: str, torch: list[str], torch_index: str) -> None:
    """torch first: whether the configured indexes have its CPU build decides where to ask."""
    if not torch or not pip_fails(python, ["--no-deps", *torch]):
        return
    say(f"the configured package indexes have no {torch[0]}; taking it from {torch_index}")
    pip(python, ["--no-deps", "--extra-index-url", torch_index, *torch], f"{torch[0]} could not be installed")


def check_packages(python: str) -> None:
    """Refuse packages that break the CPU stack, saying how to remove them."""
    code = (
        "import importlib.metadata as m, sys\n"
        "found = {d.metadata['Name'].lower() for d in m.distributions()}\n"
        "print(' '.join(name for name in sys.argv[1:] if name in found))"
    )
    found = subprocess.run(
        [python, "-c", code, *MUST_STAY_OUT], capture_output=True, text=True, check=True
    ).stdout.split()
    if found:
        raise SetupError(
            f"{', '.join(found)} beside torch +cpu breaks `import transformers`; "
            f"run `{python} -m pip uninstall -y {' '.join(found)}` and try again"
        )


def pip_fails(python: str, arguments: list[str]) -> bool:
    """Whether pip refuses; says nothing itself."""
    return subprocess.run(pip_command(python, arguments), capture_output=True, env=quiet()).returncode != 0


def pip(python: str, arguments: list[str], failure: str) -> None:
    """Install; pip's warnings about indexes stay quiet, its errors are shown."""
    run(pip_command(python, arguments), failure)


def pip_command(python: str, arguments: list[str]) -> list[str]:
    return [python, "-m", "pip", "install", "-qq", *arguments]


def run(command: list[str], failure: str) -> None:
    if subprocess.run(command, env=quiet()).returncode != 0:
        raise SetupError(f"{failure}; the command was: {' '.join(command)}")


def quiet() -> dict[str, str]:
    return {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}


def say(text: str) -> None:
    sys.stderr.write(f"setup: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
