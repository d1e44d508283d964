# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One registry for every extension point: name to object, duplicates refused, unknown names answered with the known."""

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from verl.errors import ConfigError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names of one kind of thing.

    `key` is the configuration key that selects the name, so that errors can say where to look.
    """

    def __init__(self, kind: str, key: str | None = None) -> None:
        self.kind = kind
        self.key = key
        self._items: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator; registering the same object twice is allowed, another object under the name is not."""

        def add(item: T) -> T:
            known = self._items.get(name)
            if known is not None and known is not item and not _same_definition(known, item):
                raise ConfigError(f"{self.kind} {name!r} is already registered as {known!r}", got=item)
            self._items[name] = item
            return item

        return add

    def get(self, name: str) -> T:
        if name not in self._items:
            near = difflib.get_close_matches(str(name), self._items, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(
                f"unknown {self.kind}",
                where=self.key,
                got=name,
                remedy=f"{hint}known: {', '.join(sorted(self._items))}",
            )
        return self._items[name]

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._items))


def _same_definition(a: object, b: object) -> bool:
    # A module that is executed twice (pickled by Ray, reloaded in a notebook) defines the same thing again.
    return getattr(a, "__qualname__", a) == getattr(b, "__qualname__", b) and getattr(a, "__module__", 0) == getattr(
        b, "__module__", 1
    )
