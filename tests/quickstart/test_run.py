# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from verl.errors import CheckpointError
from verl.quickstart.__main__ import parse
from verl.quickstart.cache import Prepared
from verl.quickstart.run import command_line, existing_run_dir, final_model, new_run_dir, run
from verl.quickstart.summary import Summary, print_summary

PREPARED = Prepared(Path("/h/base"), Path("/h/train"), Path("/h/held"), {"greedy": 0.5, "sampled": 0.4})


def test_overrides_of_the_person_come_last_in_their_order() -> None:
    run_dir, overrides = parse(["trainer.seed=1", "--run", "/r", "+a.b=2", "--config-dir", "/x", "~c"])
    assert run_dir == Path("/r")
    assert command_line(PREPARED, Path("/r"), overrides)[-5:] == [
        "trainer.seed=1",
        "+a.b=2",
        "--config-dir",
        "/x",
        "~c",
    ]


def test_each_quick_start_has_a_directory_of_its_own(tmp_path: Path) -> None:
    first, second = new_run_dir(tmp_path), new_run_dir(tmp_path)
    assert first != second and first.parent == tmp_path / "runs"


def test_only_a_run_can_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        existing_run_dir(tmp_path)


@pytest.mark.parametrize(
    ("code", "expected"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_of_the_run_is_told(code: str, expected: int) -> None:
    assert run([sys.executable, "-c", code]) == expected


def test_a_request_to_stop_reaches_the_run() -> None:
    child = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    parent = f"import sys\nfrom verl.quickstart.run import run\nsys.exit(run([sys.executable, '-c', {child!r}]))"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(timeout=30) == 143


def test_the_final_model_is_that_of_the_newest_checkpoint(tmp_path: Path) -> None:
    assert final_model(tmp_path) is None
    for step in (120, 240):
        folder = tmp_path / f"global_step_{step}" / "actor" / "huggingface"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_text("")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("240\n")
    assert final_model(tmp_path) == tmp_path / "global_step_240" / "actor" / "huggingface"


@pytest.mark.parametrize(
    ("end", "expected"),
    [({"sampled": 0.56, "greedy": 0.93}, True), ({"sampled": 0.5, "greedy": 0.93}, False), (None, False)],
)
def test_the_table_says_when_a_run_learned_too_little(end: dict[str, float] | None, expected: bool) -> None:
    summary = Summary({"sampled": 0.4, "greedy": 0.5}, end, 240, 250.0, [("metrics", "/a/very/long/path" * 10)])
    console = Console(width=60, record=True, file=io.StringIO())
    print_summary(console, summary)
    text = console.export_text()
    assert summary.as_expected == expected
    assert ("Less than the quick start" in text) != expected
    assert "240 policy versions in 4:10" in text and "/a/very/long/path" * 10 in text
