# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Does the built wheel hold the whole package, and does it work where it is installed?

python tools/check_wheel.py DIST [--no-install] [--quickstart]: compares the wheel with the package's tracked files,
then installs it without dependencies into an empty virtual environment that sees this one's packages, goes to /,
imports every module that needs no optional package, and composes every primary configuration. With --quickstart it
trains there too.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRIMARY = (
    ("verl.experimental.fully_async_policy.config", "fully_async_ppo_trainer"),
    ("verl.experimental.fully_async_policy.config", "quickstart"),
    ("verl.trainer.config", "ppo_trainer"),
)
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


def install_and_try(wheel: Path, quickstart: bool) -> None:
    """Install into an empty environment and use it from another directory."""
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        python = f"{place}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "-qq", "--no-deps", "--no-index", str(wheel)], check=True)
        # The dependencies are this environment's, whose own verl (an editable install) must not be seen.
        packages = [path for path in sys.path if path.endswith("site-packages")]
        (next(Path(place).glob("lib/python3*/site-packages")) / "outer.pth").write_text("\n".join(packages))
        environment = {**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"}
        subprocess.run([python, "-c", SMOKE.format(primary=PRIMARY)], cwd="/", env=environment, check=True)
        if quickstart:
            environment["VERL_HOME"] = f"{place}/home"
            short = ["rollout.total_rollout_steps=64", "trainer.val_before_train=false"]
            subprocess.run([python, "-m", "verl.quickstart", *short], cwd=place, env=environment, check=True)


def main() -> int:
    """Check; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=Path)
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--quickstart", action="store_true", help="a short quick start from the installed wheel")
    options = parser.parse_args()
    wheel = max(options.dist.glob("verl-*.whl"), key=lambda path: path.stat().st_mtime)
    expected, found = package_files(), wheel_files(wheel)
    for name in sorted(expected ^ found):
        sys.stderr.write(f"{'only in the checkout' if name in expected else 'only in the wheel'}: {name}\n")
    if expected != found:
        return 1
    if not options.no_install:
        install_and_try(wheel, options.quickstart)
    sys.stderr.write(f"{wheel.name} is whole\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
