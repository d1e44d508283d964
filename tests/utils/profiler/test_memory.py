# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Memory before and after a piece of work."""

import logging

import pytest

from verl.utils.profiler import GPUMemoryLogger, log_gpu_memory_usage


def test_the_line_says_how_much_is_used(caplog: pytest.LogCaptureFixture) -> None:
    mine = logging.getLogger("a.recipe")
    with caplog.at_level(logging.DEBUG, logger="a.recipe"):
        log_gpu_memory_usage(head="after init", logger=mine, level=logging.DEBUG, rank=0)
    (line,) = caplog.messages
    assert line.startswith("after init: ") and "cpu_used_gb " in line


def test_without_a_logger_the_line_is_shown_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="verl"):
        log_gpu_memory_usage("after init")
    assert caplog.messages[0].startswith("after init: ")


def test_the_decorator_frames_each_call_and_passes_everything_through(caplog: pytest.LogCaptureFixture) -> None:
    mine = logging.getLogger("a.recipe")

    @GPUMemoryLogger(role="actor", logger=mine)
    def add(a: int, *, b: int) -> int:
        mine.debug("working")
        return a + b

    with caplog.at_level(logging.DEBUG, logger="a.recipe"):
        assert add(1, b=2) == 3
    before, work, after = caplog.messages
    assert before.startswith("[Rank 0] [actor] before add: ") and work == "working"
    assert after.startswith("[Rank 0] [actor] after add: ")
    assert add.__name__ == "add"
