# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Print the base requirements that this environment lacks, one a line; torch and vllm are never among them.

pip install -r <(python tools/missing_requirements.py)
"""

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


if __name__ == "__main__":
    sys.stdout.write("".join(line + "\n" for line in missing()))
