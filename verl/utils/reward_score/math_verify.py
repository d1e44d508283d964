# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Equality of mathematical expressions by the math-verify library (SymPy)."""

import logging
import threading

from verl.errors import RewardError
from verl.utils.import_utils import optional_import

__all__ = ["TimeoutException", "compute_score", "expressions_equal"]

# The library warns at every call that we bound the time ourselves; we do, by killing the process.
logging.getLogger("math_verify").setLevel(logging.ERROR)


class TimeoutException(RewardError):
    """Parsing or comparing took too long."""


def compute_score(model_output: str, ground_truth: str, timeout_score: float = 0, timeout: float = 30.0) -> float:
    """1 where the answer in `model_output` equals `ground_truth`, else 0; `timeout_score` after `timeout` s."""
    try:
        return float(expressions_equal(model_output, f"\\boxed{{{ground_truth}}}", timeout_s=timeout))
    except TimeoutException:
        return timeout_score


def expressions_equal(answer: str, truth: str, timeout_s: float | None = None) -> bool:
    """Whether the expression found in `answer` equals the one in `truth`.

    `timeout_s` holds in the main thread only (the library uses a signal); elsewhere the caller bounds the time.
    """
    library = optional_import("math_verify", needed_for="data_source=a symbolic mathematics scorer")
    alarm_s = _alarm(timeout_s)
    try:
        gold = library.parse(truth, parsing_timeout=alarm_s, raise_on_error=True)
        found = library.parse(answer, parsing_timeout=alarm_s, raise_on_error=True)
        return bool(gold and found and library.verify(gold, found, timeout_seconds=alarm_s, raise_on_error=True))
    except _timeouts() as error:
        raise TimeoutException("the expressions were not compared in time", got=f"{timeout_s} s") from error
    except Exception as error:
        # What SymPy cannot read or compare is not equal; its exceptions have no common base.
        logging.getLogger(__name__).debug("not comparable: %s", error)
        return False


def numeric_value(text: str, timeout_s: float | None = None) -> float | None:
    """The real number that an expression is, or None."""
    library = optional_import("math_verify", needed_for="data_source=a symbolic mathematics scorer")
    try:
        found = library.parse(text, parsing_timeout=_alarm(timeout_s), raise_on_error=True)
        return float(found[0].evalf()) if found and hasattr(found[0], "evalf") else None
    except _timeouts() as error:
        raise TimeoutException("the expression was not read in time", got=f"{timeout_s} s") from error
    except Exception as error:
        logging.getLogger(__name__).debug("no number: %s", error)
        return None


def _alarm(timeout_s: float | None) -> int | None:
    """Whole seconds for the library's signal, which only the main thread gets."""
    if timeout_s is None or threading.current_thread() is not threading.main_thread():
        return None
    return max(1, int(timeout_s))


def _timeouts() -> tuple[type[BaseException], ...]:
    errors = optional_import("math_verify.errors", needed_for="data_source=a symbolic mathematics scorer")
    return (errors.TimeoutException,)
