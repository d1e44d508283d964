# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Small helpers on plain Python values: dictionaries, nested data, growing enums, time limits."""

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np

from verl.errors import ConfigError, DataError, WaitTimeout
from verl.waits import expired


def union_two_dict(dict1: dict, dict2: dict) -> dict:
    """Add `dict2` to `dict1`, in place; a key that both have must hold equal values."""
    for key, value in dict2.items():
        if key in dict1 and not np.array_equal(dict1[key], value):
            raise DataError("both dictionaries have this key, with different values", where=str(key))
        dict1[key] = value
    return dict1


def rename_dict(data: dict, prefix: str = "") -> dict:
    """The same values under keys with `prefix/` in front, unless they have it already."""
    if not prefix:
        return dict(data)
    return {key if key.startswith(prefix) else f"{prefix}/{key}": value for key, value in data.items()}


def append_to_dict(data: dict, new_data: dict, prefix: str = "") -> None:
    """Append each value of `new_data` to the list under its key (with `prefix` in front), in place."""
    for key, value in new_data.items():
        data.setdefault(f"{prefix}{key}", []).append(value)


def list_of_dict_to_dict_of_list(list_of_dict: list[dict]) -> dict[str, list]:
    """Rows to columns; all rows must have the keys of the first."""
    if not list_of_dict:
        return {}
    keys = list_of_dict[0].keys()
    for row, item in enumerate(list_of_dict):
        if item.keys() != keys:
            raise DataError("the dictionaries have different keys", where=f"row {row}", got=sorted(item.keys() ^ keys))
    return {key: [item[key] for item in list_of_dict] for key in keys}


def convert_to_regular_types(obj: Any) -> Any:
    """Mappings and sequences of any kind (OmegaConf's too) to plain dicts and lists, recursively."""
    if isinstance(obj, Mapping):
        return {key: convert_to_regular_types(value) for key, value in obj.items()}
    if isinstance(obj, Sequence) and not isinstance(obj, str | bytes | bytearray | range):
        return [convert_to_regular_types(value) for value in obj]
    return obj


def convert_nested_value_to_list_recursive(data_item: Any) -> Any:
    """Arrays and NumPy scalars inside dicts and lists to lists and Python scalars, recursively."""
    if isinstance(data_item, dict):
        return {key: convert_nested_value_to_list_recursive(value) for key, value in data_item.items()}
    if isinstance(data_item, list | tuple):
        return [convert_nested_value_to_list_recursive(value) for value in data_item]
    if isinstance(data_item, np.ndarray):
        return convert_nested_value_to_list_recursive(data_item.tolist())
    return data_item.item() if isinstance(data_item, np.generic) else data_item


class NestedNamespace(SimpleNamespace):
    """A dictionary whose keys, at every depth, are attributes."""

    def __init__(self, dictionary: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for key, value in dictionary.items():
            if not isinstance(key, str):
                raise DataError("only strings can be attributes", got=key)
            setattr(self, key, NestedNamespace(value) if isinstance(value, Mapping) else value)


class DynamicEnumMeta(type):
    """Iteration and lookup for `DynamicEnum` classes."""

    _registry: dict[str, Any]

    def __iter__(cls) -> Iterator[Any]:
        return iter(cls._registry.values())

    def __contains__(cls, item: Any) -> bool:
        return item in cls._registry if isinstance(item, str) else item in cls._registry.values()

    def __getitem__(cls, name: str) -> Any:
        return cls._registry[name]

    def names(cls) -> list[str]:
        return list(cls._registry)

    def values(cls) -> list[Any]:
        return list(cls._registry.values())


class DynamicEnum(metaclass=DynamicEnumMeta):
    """An enum that users may extend; each subclass has its own `_registry` and `_next_value`."""

    _registry: ClassVar[dict[str, Any]] = {}
    _next_value: ClassVar[int] = 0

    def __init__(self, name: str, value: int) -> None:
        self.name = name
        self.value = value

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self.value}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # By name, so that a member is the same object on the other side of a pickle.
        return _member, (type(self), self.name)

    @classmethod
    def register(cls, name: str) -> Self:
        """Add a member; the name becomes an attribute in upper case."""
        key = name.upper()
        if key in cls._registry:
            raise ConfigError(f"{cls.__name__} already has this member", got=key)
        member = cls(key, cls._next_value)
        cls._registry[key] = member
        setattr(cls, key, member)
        cls._next_value += 1
        return member

    @classmethod
    def remove(cls, name: str) -> Self:
        """Take a member out again."""
        member = cls._registry.pop(name.upper())
        delattr(cls, member.name)
        return member

    @classmethod
    def from_name(cls, name: str) -> Self | None:
        """The member of that name in any case, or None."""
        return cls._registry.get(name.upper())


def _member(cls: type[DynamicEnum], name: str) -> DynamicEnum:
    return cls.from_name(name) or cls.register(name)


@contextmanager
def temp_env_vars(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the block runs."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def temp_env_var(key: str, value: str) -> Iterator[None]:
    """Set an environment variable while the block runs."""
    with temp_env_vars({key: value}):
        yield


def timeout_limit(seconds: float, use_signals: bool = False) -> Callable[[Callable], Callable]:
    """Decorator: a call that takes longer raises WaitTimeout.

    With `use_signals` the call is interrupted (main thread only); without, it goes on in a daemon thread whose
    result is dropped, because Python cannot stop a thread. What must really end belongs in a process of its own.
    """

    def decorate(function: Callable) -> Callable:
        run = _run_with_alarm if use_signals else _run_in_thread

        @functools.wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            return run(functools.partial(function, *args, **kwargs), function.__qualname__, seconds)

        return limited

    return decorate


def _run_with_alarm(call: Callable[[], Any], name: str, seconds: float) -> Any:
    def ring(signum: int, frame: Any) -> None:
        raise expired("return", name, seconds)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _run_in_thread(call: Callable[[], Any], name: str, seconds: float) -> Any:
    outcome: Future = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, name=f"timeout_limit({name})", daemon=True).start()
    try:
        return outcome.result(timeout=seconds)
    except TimeoutError as error:
        if outcome.done() or isinstance(error, WaitTimeout):
            raise
        raise expired("return", name, seconds) from error
