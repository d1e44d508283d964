# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import io
import os
import pty
import subprocess
import sys

import pytest

from verl.trainer.progress import ProgressLine, clock_text, describe

STATUS = {
    "step": 12,
    "total_steps": 240,
    "policy_version": 11,
    "reward": 0.4375,
    "staleness": 0.5,
    "tokens_per_s": 8123.0,
    "waiting_for": "32 groups from the rollouter",
}


def test_the_line_says_everything_that_is_known_in_one_order() -> None:
    assert describe(STATUS) == (
        "step 12/240 · version 11 · reward 0.44 · staleness 0.50 · 8.1k tok/s · "
        "waiting for 32 groups from the rollouter"
    )
    assert describe({"phase": "starting vLLM", "unknown": 1}) == "starting vLLM"
    assert describe({"step": 0, "reward": None}) == "step 0"
    assert describe({}) == ""


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0:00"), (65, "1:05"), (3723.9, "1:02:03")])
def test_times_are_written_like_a_clock(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_without_a_terminal_a_plain_line_comes_at_most_every_interval() -> None:
    now = [0.0]
    stream = io.StringIO()
    with ProgressLine(stream, interval_s=5.0, clock=lambda: now[0]) as progress:
        for second in range(12):
            now[0] = float(second)
            progress.update({"step": second})
    assert stream.getvalue() == "[0:00] step 0\n[0:05] step 5\n[0:10] step 10\n[0:11] step 11\n"


def test_an_unchanged_status_is_not_repeated() -> None:
    now = [0.0]
    stream = io.StringIO()
    progress = ProgressLine(stream, interval_s=1.0, clock=lambda: now[0])
    for second in range(5):
        now[0] = float(second)
        progress.update({"phase": "starting"})
    assert stream.getvalue() == "[0:00] starting\n"


def test_on_a_terminal_one_line_is_redrawn_and_removed() -> None:
    code = (
        "import time\nfrom verl.trainer.progress import ProgressLine\n"
        "with ProgressLine() as progress:\n"
        "    for step in range(3):\n"
        "        progress.update({'step': step, 'total_steps': 3, 'waiting_for': 'x' * 500})\n"
        "        time.sleep(0.4)\n"
    )
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen([sys.executable, "-c", code], stderr=slave, stdout=slave, env=environment)
    os.close(slave)
    output = b""
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:
            break
        output += chunk
    assert process.wait() == 0
    text = output.decode()
    assert "step 2/3" in text and "…" in text
    # Drawn over itself with carriage returns and erased at the end, never scrolled.
    assert text.count("\n") <= 2 and "\x1b[2K" in text


def test_the_progress_line_loads_without_torch() -> None:
    code = "import sys, verl.trainer.progress; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
