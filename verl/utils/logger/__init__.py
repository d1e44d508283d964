# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Lines of one rank or of all, for code that runs on every rank."""

import logging
import sys
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from verl.utils.metric.scalars import step_line

__all__ = ["DecoratorLoggerBase", "LocalLogger", "log_with_rank", "print_rank_0", "print_with_rank"]

_logger = logging.getLogger(__name__)


class LocalLogger:
    """Metrics on standard output, one line a step, as the console tracker writes it."""

    def __init__(self, print_to_console: bool = True) -> None:
        self.print_to_console = print_to_console

    def flush(self) -> None:
        """Nothing is held back; here for callers of other loggers."""
        sys.stdout.flush()

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """One line with the numbers of `data`; other values are left out."""
        if not self.print_to_console:
            return
        sys.stdout.write(step_line(data, step) + "\n")
        sys.stdout.flush()


class DecoratorLoggerBase:
    """Base of decorators that log about the function they wrap: to `logger`, or to this module's own."""

    def __init__(
        self,
        role: str,
        logger: logging.Logger | None = None,
        level: int = logging.DEBUG,
        rank: int = 0,
        log_only_rank_0: bool = True,
    ) -> None:
        self.role = role
        self.logger = logger
        self.level = level
        self.rank = rank
        self.log_only_rank_0 = log_only_rank_0

    def write(self, message: str) -> None:
        """One record with the role; none from the other ranks where only rank 0 logs."""
        # Without a logger of the caller's there is no level to fall below.
        logger, level = (self.logger, self.level) if self.logger is not None else (_logger, logging.INFO)
        log_with_rank(f"[{self.role}] {message}", self.rank, logger, level, self.log_only_rank_0)


def log_with_rank(
    message: str, rank: int, logger: logging.Logger, level: int = logging.INFO, log_only_rank_0: bool = False
) -> None:
    """`message` with its rank to `logger`; with `log_only_rank_0` only from rank 0."""
    if rank == 0 or not log_only_rank_0:
        logger.log(level, "[Rank %d] %s", rank, message)


def print_with_rank(message: str, rank: int = 0, log_only_rank_0: bool = False) -> None:
    """`log_with_rank` through this module's logger."""
    log_with_rank(message, rank, _logger, logging.INFO, log_only_rank_0)


def print_rank_0(message: str) -> None:
    """`message` from rank 0 of the default process group, or from a process without one."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        _logger.info("%s", message)
