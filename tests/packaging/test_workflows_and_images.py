# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Workflows and Dockerfiles, read by their linters and by our own rules."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DOCKERFILES = sorted((ROOT / "docker").glob("*/Dockerfile.*"))
MAKEFILE = (ROOT / "Makefile").read_text()


def name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name)
def test_actionlint_has_nothing_to_say(workflow: Path) -> None:
    result = subprocess.run([BIN / "actionlint", str(workflow)], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name)
def test_hadolint_has_nothing_to_say(dockerfile: Path) -> None:
    result = subprocess.run([BIN / "hadolint", "--no-color", str(dockerfile)], capture_output=True, text=True)
    assert result.returncode == 0 and not result.stdout, result.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name)
def test_actions_are_pinned_to_releases_and_permissions_are_least(workflow: Path) -> None:
    text = workflow.read_text()
    for used in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+\.\d+\.\d+", used), used
    content = yaml.safe_load(text)
    assert content["permissions"] == {"contents": "read"}
    for job in content["jobs"].values():
        assert job["timeout-minutes"] <= 180
        assert set(job.get("permissions", {}).values()) <= {"read"} or "packages" in job["permissions"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name)
def test_what_a_workflow_runs_exists(workflow: Path) -> None:
    text = workflow.read_text()
    for verb in re.findall(r"run: make ([a-z-]+)", text):
        assert re.search(rf"^{verb}:", MAKEFILE, flags=re.MULTILINE), verb
    for path in re.findall(r"(?:docker|examples)/[\w./-]+", text):
        path = path.removeprefix("/opt/verl/")
        assert "/" in path and ((ROOT / path).exists() or path.startswith("docker/login-") or "build-push" in path), (
            path
        )


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name)
def test_images_are_pinned_not_root_and_checked(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    bases = re.findall(r"^(?:ARG BASE=|FROM )(\S+)", text, flags=re.MULTILINE)
    for base in bases:
        assert base in ("${BASE}", "checked") or re.search(r":v?\d+\.\d+\.\d+", base), base
    assert re.search(r"^USER 10001$", text, flags=re.MULTILINE)
    assert "HEALTHCHECK" in text and "check.sh" in text and "org.opencontainers.image.licenses" in text
    for line in re.findall(r"^RUN (.*)$", text, flags=re.MULTILINE):
        # Whatever runs without a device is in a script that CI runs too.
        assert re.match(r"/opt/verl/docker/scripts/|useradd |python tools/setup_env\.py", line), line


def test_the_check_script_passes_in_this_environment() -> None:
    script = ROOT / "docker" / "scripts" / "check.sh"
    result = subprocess.run(
        ["bash", str(script)], env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "the configuration composes" in result.stdout


def test_every_environment_variable_of_the_images_has_its_reason() -> None:
    readme = (ROOT / "docker" / "README.md").read_text()
    for dockerfile in DOCKERFILES:
        for variable in re.findall(r"^(?:ENV|   ) *([A-Z][A-Z_]+)=", dockerfile.read_text(), flags=re.MULTILINE):
            assert variable in ("PATH", "PYTHON") or f"`{variable}=" in readme, variable
