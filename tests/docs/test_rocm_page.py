# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The guide to ROCm: each of the six fixes has tests that exist, and a command that works as it stands on the page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from verl.utils.json_utils import dumps

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hardware" / "rocm.md").read_text()
TABLE = PAGE.partition("## The six fixes")[2].partition("\n## ")[0]
LINES = [line for line in TABLE.splitlines() if re.match(r"\| \d \|", line)]
ROWS = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in LINES]


def run(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "VERL_PLATFORM": "rocm"}
    return subprocess.run(["bash", "-euc", command], cwd=cwd, env=environ, capture_output=True, text=True)


def code(cell: str) -> str:
    return re.findall(r"`([^`]+)`", cell)[0]


def test_there_are_six_rows_each_with_a_test_and_a_check_on_the_node() -> None:
    assert [row[0] for row in ROWS] == list("123456")
    assert all(len(row) == 4 and code(row[2]).startswith("pytest ") and code(row[3]) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_tests_of_a_fix_are_there(row: list[str]) -> None:
    done = run(f"{code(row[2])} --collect-only", ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* tests? collected|: [1-9]\d*$", done.stdout, flags=re.MULTILINE), done.stdout


def test_the_commands_that_need_no_device_work_as_they_stand(tmp_path: Path) -> None:
    first = run(code(ROWS[0][3]), tmp_path)
    assert (first.returncode, first.stdout.strip()) == (0, "1"), first.stderr
    (tmp_path / "rollouts").mkdir()
    dump = tmp_path / "rollouts" / "1.jsonl"
    second = code(ROWS[1][3]).replace("<run>", str(tmp_path))
    dump.write_text(dumps({"score": np.float32(0.5), "acc": np.bool_(True)}) + "\n")
    assert run(second, tmp_path).returncode == 0
    dump.write_text("{'acc': np.True_}\n")
    assert run(second, tmp_path).returncode != 0, "the command must notice"
    fifth = run(code(ROWS[4][3]), tmp_path)
    assert fifth.returncode == 0 and "async_training" in fifth.stdout, fifth.stderr
