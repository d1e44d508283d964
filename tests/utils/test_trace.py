# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from verl.utils.trace import event, read_trace, record_span, set_up_trace, span, stop_trace


@pytest.fixture(autouse=True)
def no_trace_left() -> Iterator[None]:
    stop_trace()
    yield
    stop_trace()


def test_spans_go_nowhere_until_a_directory_is_set(tmp_path: Path) -> None:
    with span("before"):
        pass
    assert read_trace(tmp_path) == []


def test_a_span_has_role_times_and_arguments(tmp_path: Path) -> None:
    set_up_trace(tmp_path / "trace", "trainer")
    with span("update_actor", step=np.int64(3)) as args:
        args["tokens"] = 12
    event("published", version=1)
    first, second = read_trace(tmp_path / "trace")
    assert (first["name"], first["role"], first["args"]) == ("update_actor", "trainer", {"step": 3, "tokens": 12})
    assert first["start_s"] <= first["end_s"] <= second["start_s"] == second["end_s"]
    assert (tmp_path / "trace" / f"trainer-{os.getpid()}.jsonl").exists()


def test_a_failed_block_is_recorded_with_its_error_and_goes_on_failing(tmp_path: Path) -> None:
    set_up_trace(tmp_path, "trainer")
    with pytest.raises(KeyError), span("gen"):
        raise KeyError("x")
    assert read_trace(tmp_path)[0]["args"] == {"error": "KeyError"}


def test_a_forked_child_writes_to_its_own_file(tmp_path: Path) -> None:
    set_up_trace(tmp_path, "role")
    event("parent")
    child = os.fork()
    if child == 0:
        event("child")
        os._exit(0)
    os.waitpid(child, 0)
    event("parent again")
    assert {(item["name"], item["pid"]) for item in read_trace(tmp_path)} == {
        ("parent", os.getpid()),
        ("child", child),
        ("parent again", os.getpid()),
    }


def test_a_killed_process_leaves_every_finished_span(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom verl.utils.trace import event, set_up_trace\n"
        "set_up_trace(sys.argv[1], 'victim')\n"
        "for i in range(100): event('tick', i=i)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.run([sys.executable, "-c", code, str(tmp_path)])
    assert process.returncode == -signal.SIGKILL
    assert [item["args"]["i"] for item in read_trace(tmp_path)] == list(range(100))


def test_a_torn_line_is_left_out_and_the_rest_is_read(tmp_path: Path) -> None:
    set_up_trace(tmp_path, "role")
    record_span("good", 1.0, 2.0)
    next(tmp_path.glob("*.jsonl")).open("a").write('{"name": "torn')
    assert [item["name"] for item in read_trace(tmp_path)] == ["good"]


def test_a_directory_that_cannot_be_written_ends_tracing_not_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    set_up_trace(tmp_path / "file" / "trace", "role")
    with span("work"):
        pass
    with span("more work"):
        pass
