# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`BaseConfig`: a frozen dataclass that also answers as a mapping, because user extensions call `config.get`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class BaseConfig(Mapping):
    """Base of all typed configurations; read by attribute, by key, or by `get`."""

    def __getitem__(self, key: str) -> Any:
        if key not in self._names():
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))
