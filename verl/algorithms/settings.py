# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Read a setting from whatever carries it: typed dataclass, DictConfig, dict or plain namespace."""

from collections.abc import Iterator, Mapping
from typing import Any


def setting(config: Any, path: str, default: Any = None) -> Any:
    """The value at a dotted path, or `default` where a step of the path is absent or null."""
    node = config
    for name in path.split("."):
        if node is None:
            return default
        node = node.get(name) if callable(getattr(node, "get", None)) else getattr(node, name, None)
    return default if node is None else node


class Overlay(Mapping):
    """A configuration with some entries replaced; the one below is never written, because it is the user's."""

    def __init__(self, base: Any, **entries: Any) -> None:
        self._base = base
        self._entries = entries

    def __getitem__(self, key: str) -> Any:
        if key in self._entries:
            return self._entries[key]
        if isinstance(self._base, Mapping):
            return self._base[key]
        try:
            return getattr(self._base, key)
        except AttributeError as error:
            raise KeyError(key) from error

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        try:
            return self[key]
        except KeyError as error:
            raise AttributeError(key) from error

    def __iter__(self) -> Iterator[str]:
        below = self._base if isinstance(self._base, Mapping) else vars(self._base)
        return iter({**dict.fromkeys(below), **dict.fromkeys(self._entries)})

    def __len__(self) -> int:
        return sum(1 for _ in self)
