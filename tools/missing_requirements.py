# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Print the base requirements that this environment lacks, one a line; torch and vllm are never among them.

pip install -r <(python tools/missing_requirements.py)

With --pins LOCK: constraints instead, the lock's version of every package that is not here yet. What an image brings
keeps its version, and what is added to it has a known one.
"""

import argparse
import importlib.metadata
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def missing() -> list[str]:
    """Requirements without an installed distribution, or with one that is too old."""
    lines = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    return [line for line in lines if not satisfied(Requirement(line))]


def satisfied(requirement: Requirement) -> bool:
    """Whether an installed version fits."""
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


def pins(lock: Path) -> list[str]:
    """The lock's lines for packages that are not installed; the builds of torch and vLLM are the image's business."""
    lines = [line.strip() for line in lock.read_text(encoding="utf-8").splitlines()]
    wanted = [line for line in lines if line and not line.startswith(("#", "torch", "vllm"))]
    return [line for line in wanted if not _installed(line.partition("==")[0])]


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pins", type=Path, metavar="LOCK")
    options = parser.parse_args()
    lines = pins(options.pins) if options.pins else missing()
    sys.stdout.write("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
