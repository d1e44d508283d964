# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Memory before and after a piece of work, in the log."""

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from verl.utils.logger import DecoratorLoggerBase
from verl.utils.memory_utils import get_memory_info

__all__ = ["GPUMemoryLogger", "log_gpu_memory_usage"]

F = TypeVar("F", bound=Callable[..., Any])
_logger = logging.getLogger(__name__)


def log_gpu_memory_usage(
    head: str, logger: logging.Logger | None = None, level: int = logging.DEBUG, rank: int = 0
) -> None:
    """One line with `get_memory_info`, from this rank only; `rank=None` means from all.

    Without `logger` it goes to this module's own, at INFO.
    """
    if rank is not None and dist.is_initialized() and dist.get_rank() != rank:
        return
    if logger is None:
        logger, level = _logger, logging.INFO
    logger.log(level, "%s", _line(head))


class GPUMemoryLogger(DecoratorLoggerBase):
    """Decorator: logs the memory in use before and after each call of the function."""

    def __init__(
        self,
        role: str,
        logger: logging.Logger | None = None,
        level: int = logging.DEBUG,
        log_only_rank_0: bool = True,
    ) -> None:
        super().__init__(role, logger, level, log_only_rank_0=log_only_rank_0)

    def __call__(self, decorated_function: F) -> F:
        @functools.wraps(decorated_function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return self.log(decorated_function, *args, **kwargs)

        return inner  # type: ignore[return-value]

    def log(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `func` between two lines."""
        # The decorator is built at import, before there is a rank.
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        name = getattr(func, "__name__", type(func).__name__)
        self.write(_line(f"before {name}"))
        result = func(*args, **kwargs)
        self.write(_line(f"after {name}"))
        return result


def _line(head: str) -> str:
    return f"{head}: " + ", ".join(f"{name} {value:.2f}" for name, value in get_memory_info().items())
