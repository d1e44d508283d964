# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Workflows, Dockerfiles and shell scripts, read by their linters and by our own rules."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from verl.platform import current_platform

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DOCKERFILES = sorted((ROOT / "docker").glob("*/Dockerfile.*"))
MAKEFILE = (ROOT / "Makefile").read_text()
ROOMS = (".ci", "benchmarks", "docker", "examples", "recipe", "tests", "tools", "verl")
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*")) if path.is_file()]
SCRIPTS = [path for path in FILES if re.match(rb"#!.*\bsh\b|#!.*\bbash\b", path.read_bytes()[:80])]


def name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name)
def test_actionlint_has_nothing_to_say(workflow: Path) -> None:
    assert actionlint(workflow) == ""


def actionlint(workflow: Path) -> str:
    """What it says, with the shell of the steps read by ShellCheck."""
    command = [BIN / "actionlint", "-no-color", "-shellcheck", BIN / "shellcheck", str(workflow)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert bool(result.stdout) == (result.returncode != 0), result.stderr
    return result.stdout


def test_shell_in_workflows_and_in_images_is_read_too(tmp_path: Path) -> None:
    step = "      - run: make lint\n"
    workflow = tmp_path / "cpu.yml"
    workflow.write_text(WORKFLOWS[1].read_text().replace(step, "      - run: for f in $(ls); do cat $f; done\n"))
    assert "SC2045" in actionlint(workflow) and "SC2086" in actionlint(workflow)
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM python:3.11.14-slim-bookworm\nRUN cat $HOME\n")
    result = subprocess.run([BIN / "hadolint", "--no-color", str(dockerfile)], capture_output=True, text=True)
    assert result.returncode != 0 and "SC2086" in result.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_shellcheck_has_nothing_to_say(script: Path) -> None:
    command = [BIN / "shellcheck", "--color=never", "--severity=style", str(script)]
    result = subprocess.run(command, cwd=script.parent, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_no_shell_script_is_overlooked() -> None:
    assert {path for path in FILES if path.suffix in (".sh", ".sbatch")} | {ROOT / ".ci" / "run"} == set(SCRIPTS)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name)
def test_hadolint_has_nothing_to_say(dockerfile: Path) -> None:
    result = subprocess.run([BIN / "hadolint", "--no-color", str(dockerfile)], capture_output=True, text=True)
    assert result.returncode == 0 and not result.stdout, result.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name)
def test_actions_are_pinned_to_releases_and_permissions_are_least(workflow: Path) -> None:
    text = workflow.read_text()
    for used in re.findall(r"uses: (\S+)", text):
        # A workflow of this repository is of the same commit.
        assert used.startswith("./.github/workflows/") or re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+\.\d+\.\d+", used), used
    content = yaml.safe_load(text)
    assert content["permissions"] == {"contents": "read"}
    for title, job in content["jobs"].items():
        if "uses" not in job:
            # Accepting a release takes a night.
            assert job["timeout-minutes"] <= (720 if title == "acceptance" else 180)
        assert set(job.get("permissions", {}).values()) <= {"read"} or "packages" in job["permissions"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name)
def test_what_a_workflow_runs_exists(workflow: Path) -> None:
    text = workflow.read_text()
    for verb in re.findall(r"run: make ([a-z-]+)", text):
        assert re.search(rf"^{verb}:", MAKEFILE, flags=re.MULTILINE), verb
    for kind in ("rocm", "cuda", "cpu"):
        named = text.replace("${{ inputs.kind }}", kind).replace("${{ matrix.kind }}", kind)
        for path in re.findall(r"(?<![\w/.-])(?:docker|examples|tests|benchmarks|tools)/[\w./-]+", named):
            path = path.rstrip("/")
            # Actions of Docker's own have such names too.
            assert (ROOT / path).exists() or re.match(r"docker/(login|build-push|setup-\w+)-action", path), path
    # What the calling workflow only names is a file of the called one's directory.
    for script in re.findall(r"'(\w+\.sh)'", text):
        assert (ROOT / "tests" / "special_gpu" / script).exists(), script


def test_the_jobs_on_devices_are_what_they_should_be() -> None:
    called = yaml.safe_load((ROOT / ".github" / "workflows" / "accelerator.yml").read_text())
    runs = called["jobs"]["runs"]
    kinds = runs["strategy"]["matrix"]["run"]
    script = (ROOT / "tests" / "special_gpu" / "run.sh").read_text()
    assert set(kinds) == {"fully_async_1", "fully_async_8", "colocated_8", "lora_8"}
    assert all(re.search(rf"^    {kind}\)", script, flags=re.MULTILINE) for kind in kinds)
    assert "--kill-at" in script and "UPDATES:-60" in script
    assert called["jobs"]["benchmark"]["steps"][1]["with"]["retention-days"] == 90
    for name, labels in (("rocm", ["self-hosted", "rocm", "mi300x"]), ("gpu", ["self-hosted", "cuda"])):
        caller = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
        (job,) = caller["jobs"].values()
        assert json.loads(job["with"]["labels"]) == labels
        # YAML reads the key `on` as true.
        assert "pull_request" not in caller[True], "a stranger's code would run on our machines"


def test_the_tests_of_the_images_skip_with_a_reason_where_there_is_no_device() -> None:
    script = ROOT / "docker" / "scripts" / "test.sh"
    environ = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    command = ["bash", str(script), "-m", "gpu", "-o", "addopts=--import-mode=importlib -p no:cacheprovider"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    if current_platform().device_type == "cpu":
        assert "needs an accelerator; this machine is cpu" in done.stdout
        assert re.search(r"\d+ skipped", done.stdout)


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
