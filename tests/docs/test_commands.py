# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every command block of the start pages is run by bash, in a directory that looks like the checkout.

What would install, build an image or train for minutes is taken by a stand-in that writes down what it was given; each
thing written down is then judged: make by make itself (-n), our programs by composing and validating what they were
told, pip's arguments by pip's own rules, docker's by the files and flags they name. A command nobody can judge fails.
test_commands_for_real.py runs the same blocks without stand-ins.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from command_blocks import BLOCKS, NOT_RUN_FOR_REAL, PAGES, ROOT, Block
from packaging.requirements import Requirement

import verl
from verl.config import validate
from verl.config.compose import parse_command_line
from verl.config.front_door import FULLY_ASYNC, load

MAIN = "verl.experimental.fully_async_policy.fully_async_main"
STAND_INS = ("make", "python", "python3.11", "pip", "docker", ".venv/bin/python", ".venv/bin/pip")
STAND_IN = """#!{python}
import json, os, sys
with open(os.environ["TOLD"], "a") as file:
    file.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The checkout's files by links, and stand-ins in place of what would take minutes."""
    place = tmp_path / "checkout"
    place.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in (".venv", ".git"):
            (place / entry.name).symlink_to(entry)
    for name in STAND_INS:
        file = place / name if "/" in name else tmp_path / "bin" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(STAND_IN.format(python=sys.executable))
        file.chmod(0o755)
    return place


def told_by(block: str, checkout: Path) -> list[list[str]]:
    """What the stand-ins were given when bash ran the block."""
    told = checkout.parent / "told"
    told.touch()
    environ = {
        "PATH": f"{checkout.parent / 'bin'}:/usr/bin:/bin",
        "TOLD": str(told),
        "DATA": "/data",
        "HOME": "/nowhere",
    }
    script = checkout.parent / "block.sh"
    script.write_text("set -euo pipefail\n" + block)
    done = subprocess.run(["bash", script], cwd=checkout, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in told.read_text().splitlines()]


def judge_make(arguments: list[str]) -> None:
    done = subprocess.run(["make", "-n", "-C", ROOT, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    overrides = [shlex.split(item.removeprefix("ARGS=")) for item in arguments if item.startswith("ARGS=")]
    if "quickstart" in arguments:
        for given in overrides:
            judge_quickstart(given)


def judge_quickstart(overrides: list[str]) -> None:
    files = ["actor_rollout_ref.model.path=/m", "data.train_files=/t", "data.val_files=/v"]
    config, _ = load(["--config-name=quickstart", *files, *overrides], config_name="quickstart")
    validate(config)


def judge_python(arguments: list[str]) -> None:
    if arguments[:2] == ["-m", "venv"]:
        assert len(arguments) == 3
    elif arguments[:2] == ["-m", "verl.quickstart"]:
        judge_quickstart(arguments[2:])
    elif arguments[:2] == ["-m", MAIN] and "--cfg" in arguments:
        done = subprocess.run([sys.executable, *arguments], cwd="/", env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert done.returncode == 0
    elif arguments[:2] == ["-m", MAIN]:
        name = parse_command_line(arguments[2:], FULLY_ASYNC, "fully_async_ppo_trainer").config_name
        config, _ = load(arguments[2:], config_name=name)
        validate(config)
    else:
        assert len(arguments) == 1 and (ROOT / arguments[0]).exists(), arguments


def judge_pip(arguments: list[str]) -> None:
    command, *rest = arguments
    assert command == "install"
    packages = iter(rest)
    for item in packages:
        if item in ("-r", "-e", "--extra-index-url"):
            value = next(packages)
            # <(…) is a pipe of bash's that is gone by now.
            assert "://" in value or value.startswith("/dev/fd/") or (ROOT / value).exists(), value
        elif item.startswith("-"):
            assert item in ("--no-deps", "--no-build-isolation"), item
        elif item.startswith("dist/"):
            assert item == f"dist/verl-{verl.__version__}-py3-none-any.whl[cpu]"
        elif item.startswith("."):
            assert "".join(re.findall(r"\[(\w+)\]", item)) in ("cpu", "rocm", "cuda", "math", "test", "docs"), item
        else:
            assert Requirement(item).specifier, item


def judge_docker(arguments: list[str]) -> None:
    readme = (ROOT / "docker" / "README.md").read_text()
    if arguments[0] == "build":
        assert (ROOT / arguments[arguments.index("-f") + 1]).exists() and arguments[-1] == "."
        return
    assert arguments[0] == "run" and re.fullmatch(r"verl:(rocm|cuda|cpu)", arguments[-1])
    for flag in (item.partition("=")[0] for item in arguments if item.startswith("--")):
        assert flag in ("--rm", "--gpus") or f"`{flag}" in readme or f" {flag}" in readme, f"{flag} has no reason"


JUDGES: dict[str, Callable[[list[str]], None]] = {
    "make": judge_make,
    "python": judge_python,
    "python3.11": judge_python,
    "pip": judge_pip,
    "docker": judge_docker,
}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_of_commands_runs(block: Block, checkout: Path) -> None:
    told = told_by(block.text, checkout)
    assert told, "a block that runs nothing of ours"
    for program, *arguments in told:
        JUDGES[program](arguments)


def test_the_start_pages_have_blocks_and_a_wrong_command_is_noticed(checkout: Path) -> None:
    assert {block.page for block in BLOCKS} == set(PAGES)
    with pytest.raises(AssertionError):
        told_by("nosuchprogram\n", checkout)
    for block in ("make nosuchverb\n", "python -m nosuchmodule\n", f"python -m {MAIN} trainer.nosuch=1\n"):
        (checkout.parent / "told").unlink(missing_ok=True)
        with pytest.raises((AssertionError, ValueError)):
            for program, *arguments in told_by(block, checkout):
                JUDGES[program](arguments)


def test_what_the_first_block_says_ci_does_for_real() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "cpu.yml").read_text())["jobs"]
    run = {step.get("run") for job in jobs.values() for step in job["steps"]}
    assert {"make quickstart", "make test"} <= run


def test_only_what_needs_a_device_an_engine_or_these_tests_is_not_run_for_real() -> None:
    left_out = [command for block in BLOCKS for command in block.commands() if command not in block.commands_to_run()]
    for beginning in NOT_RUN_FOR_REAL:
        assert any(f"{command} ".startswith(beginning) for command in left_out), f"no page says {beginning}"
    for command in left_out:
        assert re.match(r"docker |make test$", command) or "7B" in command, command
