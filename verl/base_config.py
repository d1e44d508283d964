# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`BaseConfig`: a frozen dataclass that also answers as a mapping, because user extensions call `config.get`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BaseConfig(Mapping):
    """Base of all typed configurations; read by attribute, by key, or by `get`."""

    def __getitem__(self, key: str) -> Any:
        if key not in type(self).__dataclass_fields__:
            raise KeyError(key)
        return getattr(self, key)

    # Mapping's own versions walk the keys and catch exceptions; these are read per trajectory.
    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401

    def __contains__(self, key: object) -> bool:
        return key in type(self).__dataclass_fields__

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(type(self).__dataclass_fields__)

    def __len__(self) -> int:
        return len(type(self).__dataclass_fields__)
