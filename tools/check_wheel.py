# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Does the built wheel hold the whole package, and does it work where it is installed?

python tools/check_wheel.py DIST [--no-install | --empty] [--quickstart]: compares the wheel with the package's tracked
files; installs it; goes to / and imports every module and composes every primary configuration. Where: in a new virtual
environment that sees this one's packages, or, with --empty, in one that sees nothing, made by the commands of
docs/hardware/cpu.md as they stand there. With --quickstart it then runs the quick start from an empty directory, kills
the training with SIGKILL on the way, and resumes it by the command it was told, to the end.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
PRIMARY = (
    ("verl.experimental.fully_async_policy.config", "fully_async_ppo_trainer"),
    ("verl.experimental.fully_async_policy.config", "quickstart"),
    ("verl.trainer.config", "ppo_trainer"),
)
PAGE = ROOT / "docs" / "hardware" / "cpu.md"
# The run is killed after this version: a checkpoint is behind it, and half of the training before it.
KILL_AT = 60
FRONT_DOOR = "verl.experimental.fully_async_policy.fully_async_main"
UPDATES = 120
SUFFIXES = {".py", ".yaml", ".json", ".jinja", ".typed"}

SMOKE = """
import importlib, pkgutil, sys
import verl
assert "site-packages" in verl.__file__, verl.__file__
names = [m.name for m in pkgutil.walk_packages(verl.__path__, "verl.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
from verl.config.compose import compose_config, parse_command_line
for module, config in {primary!r}:
    compose_config(parse_command_line([], module, config))
print(len(names), "modules,", len({primary!r}), "configurations")
"""


def package_files() -> set[str]:
    """The package's files that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "verl"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line for line in output.splitlines() if Path(line).suffix in SUFFIXES and (ROOT / line).exists()}


def wheel_files(wheel: Path) -> set[str]:
    """The package's files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("verl/")}


def install_beside(wheel: Path, place: Path) -> Path:
    """Install into a new environment that sees this one's packages; its Python."""
    venv.create(place / ".venv", with_pip=True)
    python = place / ".venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-qq", "--no-deps", "--no-index", str(wheel)], check=True)
    # The dependencies are this environment's, whose own verl (an editable install) must not be seen.
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (next(place.glob(".venv/lib/python3*/site-packages")) / "outer.pth").write_text("\n".join(packages))
    return python


def documented_commands() -> str:
    """The page's block of commands that installs a wheel into an environment of its own."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (block,) = [block for block in blocks if ".whl[cpu]" in block]
    return block


def install_as_documented(wheel: Path, place: Path) -> Path:
    """Run the page's commands in `place`, which has but the wheel, in dist/; the new environment's Python."""
    (place / "dist").mkdir()
    shutil.copy(wheel, place / "dist")
    subprocess.run(["bash", "-euc", documented_commands()], cwd=place, env=environment(place), check=True)
    python = place / ".venv" / "bin" / "python"
    asked = [python, "-c", "import sys; print(*sys.path[1:])"]
    seen = subprocess.run(asked, env=environment(place), capture_output=True, text=True, check=True).stdout
    if any(path in seen for path in sys.path if path.endswith("site-packages")):
        raise SystemExit(f"the environment is not empty: {seen}")
    return python


def environment(place: Path) -> dict[str, str]:
    """Variables for processes that must know nothing of this environment."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {**inherited, "HF_HUB_OFFLINE": "1", "VERL_HOME": str(place / "home")}


def quickstart(python: Path, place: Path) -> None:
    """Run from an empty directory, kill on the way, resume as the run itself says; raises where a promise is broken."""
    away = place / "away"
    away.mkdir()
    command = [str(python), "-m", "verl.quickstart"]
    process = subprocess.Popen(command, cwd=away, env=environment(place), stdout=subprocess.PIPE, text=True)
    while process.poll() is None and versions(place)[-1:] < [KILL_AT]:
        time.sleep(1)
    if process.poll() is None:
        training = [child for child in psutil.Process(process.pid).children() if FRONT_DOOR in child.cmdline()]
        training[0].kill()
    told = process.communicate()[0]
    resume = re.search(r"^Resume it: (.*)$", told, flags=re.MULTILINE)
    if process.returncode != 137 or not resume:
        raise SystemExit(f"after a kill: exit code {process.returncode}, expected 137 and how to resume:\n{told}")
    subprocess.run(shlex.split(resume[1]), cwd=away, env=environment(place), check=True)
    if versions(place) != list(range(1, UPDATES + 1)):
        raise SystemExit(f"trained versions are {versions(place)}, expected each of 1 … {UPDATES} once")
    if left := sorted(path.name for path in away.iterdir()):
        raise SystemExit(f"the quick start left {left} in the directory it was started from")


def versions(place: Path) -> list[int]:
    """The policy versions of the only run below `place`, in the order of its records."""
    lines = [line for path in place.glob("home/runs/*/metrics.jsonl") for line in path.read_text().splitlines(True)]
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    return [record["step"] for record in records if "actor/pg_loss" in record["data"]]


def main() -> int:
    """Check; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--no-install", action="store_true", help="compare the files only")
    where.add_argument("--empty", action="store_true", help="into an environment that sees no packages of this one")
    parser.add_argument("--quickstart", action="store_true", help="a quick start, killed and resumed, from the wheel")
    options = parser.parse_args()
    wheel = max(options.dist.glob("verl-*.whl"), key=lambda path: path.stat().st_mtime)
    expected, found = package_files(), wheel_files(wheel)
    for name in sorted(expected ^ found):
        sys.stderr.write(f"{'only in the checkout' if name in expected else 'only in the wheel'}: {name}\n")
    if expected != found:
        return 1
    if not options.no_install:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            python = (install_as_documented if options.empty else install_beside)(wheel, place)
            smoke = [python, "-c", SMOKE.format(primary=PRIMARY)]
            subprocess.run(smoke, cwd="/", env=environment(place), check=True)
            if options.quickstart:
                quickstart(python, place)
    sys.stderr.write(f"{wheel.name} is whole\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
