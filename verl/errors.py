# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The one error tree: each error says what happened, where, what was got and expected, and the remedy."""

from typing import Any

_UNSET: Any = object()


class VerlError(Exception):
    """Base of all errors raised on purpose.

    Parameters
    ----------
    what : one sentence, the fact.
    where : key path, file, rank, replica or sample uid.
    got, expected : the two sides of the disagreement, when there are two.
    remedy : what the reader should do now.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        got: Any = _UNSET,
        expected: Any = _UNSET,
        remedy: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        parts = [f"{where}: {what}" if where else what]
        if got is not _UNSET:
            parts.append(f"got {got!r}" + (f", expected {expected}" if expected is not _UNSET else ""))
        elif expected is not _UNSET:
            parts.append(f"expected {expected}")
        if remedy:
            parts.append(remedy)
        super().__init__(". ".join(part.rstrip(".") for part in parts) + ".")

    def __reduce__(self) -> tuple[Any, ...]:
        # Ray pickles exceptions; keyword-only arguments need this to survive the trip.
        return _rebuild, (type(self), str(self), self.what, self.where, self.remedy)


def _rebuild(cls: type[VerlError], message: str, what: str, where: str | None, remedy: str | None) -> VerlError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.what, error.where, error.remedy = what, where, remedy
    return error


class ConfigError(VerlError, ValueError):
    """A key, a value or a combination of values in the configuration is wrong."""


class DataError(VerlError, ValueError):
    """A file, column, row or batch does not have the form it must have."""


class RewardError(VerlError, RuntimeError):
    """A reward function or verifier failed; never the same as a reward of zero."""


class TransportError(VerlError, RuntimeError):
    """Bytes did not arrive as they were sent, or a transfer was aborted."""


class WaitTimeout(VerlError, TimeoutError):
    """A peer did not answer before the deadline; the message names the peer."""


class PeerLost(VerlError, RuntimeError):
    """A process that this one depends on has died."""


class CheckpointError(VerlError, RuntimeError):
    """A checkpoint is missing, incomplete, or does not fit this run."""


class UnsupportedError(VerlError, NotImplementedError):
    """A thing this package leaves out on purpose; the remedy names what to use."""


class UnsupportedImport(UnsupportedError, ImportError):
    """A name of upstream verl that is left out; `try: import … except ImportError` goes on working."""


class UnsupportedAttribute(UnsupportedError, AttributeError):
    """The same name asked of its module (`module.name`, `hasattr`); CPython lets no class be both kinds of error."""


def first_cause(error: BaseException) -> BaseException:
    """The first real error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
