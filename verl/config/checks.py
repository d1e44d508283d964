# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Range checks for `__post_init__`; `where` is the field, the schema puts the key path in front."""

from collections.abc import Iterable
from typing import Any

from verl.errors import ConfigError, UnsupportedError


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
