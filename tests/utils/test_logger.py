# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Lines of one rank or of all."""

import logging

import numpy as np
import pytest

from verl.tracking import Tracking
from verl.utils.logger import DecoratorLoggerBase, LocalLogger, log_with_rank, print_rank_0


def test_a_local_logger_writes_one_line_a_step_with_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    logger = LocalLogger()
    data = {"loss": 0.12345, "lr": 1e-6, "score": np.float32(0.5), "epoch": 2, "text": "no number"}
    logger.log(data=data, step=7)
    logger.flush()
    mine = capsys.readouterr().out
    assert mine == "step:7 - loss:0.12345 - lr:1e-06 - score:0.5 - epoch:2\n"
    # The very line of the console tracker.
    with Tracking("p", "e", "console") as tracking:
        tracking.log(data, step=7)
    assert capsys.readouterr().out == mine


def test_a_local_logger_can_be_silent(capsys: pytest.CaptureFixture[str]) -> None:
    LocalLogger(print_to_console=False).log({"loss": 1.0}, 1)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("rank", "only_rank_0", "lines"),
    [(0, True, ["[Rank 0] hello"]), (3, True, []), (3, False, ["[Rank 3] hello"])],
)
def test_a_line_carries_its_rank(
    caplog: pytest.LogCaptureFixture, rank: int, only_rank_0: bool, lines: list[str]
) -> None:
    mine = logging.getLogger("a.recipe")
    with caplog.at_level(logging.INFO, logger="a.recipe"):
        log_with_rank("hello", rank=rank, logger=mine, log_only_rank_0=only_rank_0)
    assert caplog.messages == lines


def test_the_level_of_the_callers_logger_counts(caplog: pytest.LogCaptureFixture) -> None:
    mine = logging.getLogger("a.recipe")
    with caplog.at_level(logging.INFO, logger="a.recipe"):
        DecoratorLoggerBase("actor", logger=mine).write("at debug")
        DecoratorLoggerBase("actor", logger=mine, level=logging.WARNING).write("at warning")
    assert caplog.messages == ["[Rank 0] [actor] at warning"]


def test_a_process_without_ranks_is_rank_zero(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="verl"):
        print_rank_0("hello")
    assert "hello" in caplog.messages
