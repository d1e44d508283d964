# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plain mapping → typed dataclass: types checked, unknown keys answered with the nearest known one."""

import difflib
import functools
import operator
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, cast

from verl.config.backend_bound import foreign_backend
from verl.config.checks import placed
from verl.config.node import Node, with_extras
from verl.errors import ConfigError, UnsupportedError
from verl.utils.import_utils import load_class_from_fqn

T = TypeVar("T")
MISSING = "???"


@dataclass
class Report:
    """How one conversion treats keys that no field holds, and which it met."""

    unknown: Literal["error", "keep"] = "error"
    kept: list[str] = field(default_factory=list)


def build(cls: type[T], values: Mapping[str, Any], path: str = "", report: Report | None = None) -> T:
    """Make a `cls` from a resolved mapping.

    Raises
    ------
    ConfigError
        for a wrong type, a value out of range, or an unknown key; `where` is the full key path.
    UnsupportedError
        for a feature or backend that is left out.
    """
    report = report or Report()
    cls = _chosen_class(cls, values.get("_target_"), path)
    hints = _hints(cls)  # type: ignore[arg-type]  # a class can be hashed; mypy doubts it of a type[T]
    known, extras = {}, {}
    for key, value in values.items():
        here = f"{path}.{key}" if path else str(key)
        if key == "_target_" or foreign_backend(here):
            continue
        if key in hints:
            known[key] = convert(hints[key], _unless_missing(value, hints[key], here), here, report)
        else:
            extras[key] = _unknown(key, value, here, hints, report)
    try:
        made: Any = cls(**known)
    except (ConfigError, UnsupportedError) as error:
        raise placed(error, path) from error
    # The same object, of the same class.
    return cast(T, with_extras(made, extras)) if isinstance(made, Node) else made


def convert(hint: Any, value: Any, path: str, report: Report) -> Any:
    """`value` as the type `hint`; a whole float passes for an int, a number for a string."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(typing.get_args(hint), value, path, report)
    if isinstance(hint, type) and is_dataclass(hint):
        if value is None:
            # A section set to null is the section left alone; where null means "off" the field says so.
            return hint()
        if not isinstance(value, Mapping):
            raise ConfigError("wrong type", where=path, got=value, expected="a section of keys")
        return build(hint, value, path, report)
    if origin is list and isinstance(value, list | tuple):
        (item,) = typing.get_args(hint)
        return [convert(item, part, f"{path}[{i}]", report) for i, part in enumerate(value)]
    if origin is tuple and isinstance(value, list | tuple):
        items = typing.get_args(hint)
        if len(value) == len(items):
            parts = zip(items, value, strict=True)
            return tuple(convert(item, part, f"{path}[{i}]", report) for i, (item, part) in enumerate(parts))
    if origin is dict and value is None:
        return {}
    if origin is dict and isinstance(value, Mapping):
        return dict(value)
    return _scalar(hint, value, path)


def _scalar(hint: Any, value: Any, path: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and number:
        return value
    if hint is int and number and float(value).is_integer():
        return int(value)
    if hint is str and number:
        return str(value)
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if hint is type(None) and value is None:
        return None
    raise _wrong_type(value, hint, path)


def _wrong_type(value: Any, hint: Any, path: str) -> ConfigError:
    if value is None:
        return ConfigError("must be set", where=path, expected=type_name(hint))
    return ConfigError("wrong type", where=path, got=value, expected=type_name(hint))


def _convert_union(hints: tuple[Any, ...], value: Any, path: str, report: Report) -> Any:
    if value is None and type(None) in hints:
        return None
    hints = tuple(hint for hint in hints if hint is not type(None))
    if len(hints) == 1:
        return convert(hints[0], value, path, report)
    # An exact type wins over a conversion: "2" stays a string where `float | str` is asked.
    for hint in sorted(hints, key=lambda hint: not _is_instance(value, hint)):
        try:
            return convert(hint, value, path, report)
        except ConfigError:
            continue
    raise _wrong_type(value, functools.reduce(operator.or_, hints), path)


def _is_instance(value: Any, hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(kind, type) and isinstance(value, kind)


def type_name(hint: Any) -> str:
    """A type as a user would say it."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        return " or ".join(type_name(arg) for arg in typing.get_args(hint))
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string", type(None): "null"}
    return names.get(hint, "a list" if typing.get_origin(hint) in (list, tuple) else str(hint))


def nearest(key: str, known: typing.Iterable[str]) -> str | None:
    """The known key that looks most like `key`, if one does."""
    matches = difflib.get_close_matches(key, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def _unless_missing(value: Any, hint: Any, path: str) -> Any:
    """`???` is null where null is allowed; elsewhere the key must be set."""
    if value != MISSING:
        return value
    if type(None) in typing.get_args(hint):
        return None
    raise ConfigError("must be set", where=path, remedy=f"add {path}=…")


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls)}


def _unknown(key: str, value: Any, path: str, known: Mapping[str, Any], report: Report) -> Any:
    if report.unknown == "error":
        near = nearest(str(key), known)
        hint = f"Did you mean {near}? " if near else ""
        raise ConfigError("unknown key", where=path, remedy=f"{hint}Known here: {', '.join(known)}")
    report.kept.append(path)
    return value


def _chosen_class(cls: type[T], target: str | None, path: str) -> type[T]:
    """The class that `_target_` names where it is a subclass of yours; verl's own names are settled by the field."""
    if not target or target.rpartition(".")[2] == cls.__name__:
        return cls
    if target.startswith("verl."):
        name = target.rpartition(".")[2]
        for sub in (cls, *_subclasses(cls)):
            if sub.__name__ == name:
                return sub
        return cls
    chosen = load_class_from_fqn(target, description=f"{path}._target_")
    if not issubclass(chosen, cls):
        raise ConfigError("wrong class", where=f"{path}._target_", got=target, expected=f"a subclass of {cls.__name__}")
    return chosen


def _subclasses(cls: type) -> list[type]:
    found: list[type] = []
    sub: type
    for sub in cls.__subclasses__():
        found += [sub, *_subclasses(sub)]
    return found
