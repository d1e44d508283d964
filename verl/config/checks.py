# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Range checks for `__post_init__`; `where` is the field, the schema puts the key path in front."""

from collections.abc import Iterable
from typing import Any

from verl.errors import ConfigError, UnsupportedError, VerlError


def require(ok: bool, field: str, got: Any, expected: str, remedy: str | None = None) -> None:
    """Raise a `ConfigError` at `field` unless `ok`."""
    if not ok:
        raise ConfigError("wrong value", where=field, got=got, expected=expected, remedy=remedy)


def at_least(config: Any, minimum: float, *names: str) -> None:
    """Each named field is null or at least `minimum`."""
    for name in names:
        value = getattr(config, name)
        require(value is None or value >= minimum, name, value, f"at least {minimum}")


def between(config: Any, low: float, high: float, *names: str) -> None:
    """Each named field is null or in [low, high]."""
    for name in names:
        value = getattr(config, name)
        require(value is None or low <= value <= high, name, value, f"between {low} and {high}")


def one_of(config: Any, name: str, choices: Iterable[Any]) -> None:
    """The named field is one of `choices`."""
    choices = tuple(choices)
    value = getattr(config, name)
    require(value in choices, name, value, "one of " + ", ".join(str(choice) for choice in choices))


def refuse(on: Any, field: str, what: str, remedy: str) -> None:
    """Raise an `UnsupportedError` at `field` when a left-out feature is switched on."""
    if on:
        raise UnsupportedError(f"{what} is not part of this package", where=field, got=on, remedy=remedy)


def refuse_all(config: Any, what: str, remedy: str, **defaults: Any) -> None:
    """Each named field has its default; another value would switch on what is left out."""
    for name, default in defaults.items():
        value = getattr(config, name)
        if value != default:
            raise UnsupportedError(
                f"{what} is not part of this package", where=name, got=value, expected=repr(default), remedy=remedy
            )


def placed(error: VerlError, path: str) -> VerlError:
    """The same error with the section's key path in front of the field."""
    if not path:
        return error
    moved = type(error).__new__(type(error))
    Exception.__init__(moved, f"{path}.{error}")
    moved.what, moved.where, moved.remedy = error.what, f"{path}.{error.where}", error.remedy
    return moved
