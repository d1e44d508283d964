# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`Node`: a typed section that also answers for the keys a recipe added beside its fields."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from verl.base_config import BaseConfig


@dataclass(frozen=True)
class Node(BaseConfig):
    """Base of every typed section.

    Keys that a recipe's YAML or a `+key=value` put beside the fields are kept as extras:
    `config.my_key`, `config["my_key"]` and `config.get("my_key")` find them.
    """

    def __getattr__(self, name: str) -> Any:
        extras = self.__dict__.get("_extras", {})
        if name in extras:
            return extras[name]
        near = difflib.get_close_matches(name, [field.name for field in fields(self)], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"{type(self).__name__} has no key {name!r}{hint}")

    def __getitem__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        return getattr(self, key)

    def __contains__(self, key: object) -> bool:
        return key in type(self).__dataclass_fields__ or key in self.__dict__.get("_extras", {})

    def __iter__(self) -> Iterator[str]:
        return iter((*type(self).__dataclass_fields__, *self.__dict__.get("_extras", {})))

    def __len__(self) -> int:
        return len(type(self).__dataclass_fields__) + len(self.__dict__.get("_extras", {}))


def with_extras(node: Node, extras: dict[str, Any]) -> Node:
    """Attach the keys that no field holds; only the schema calls this, right after construction."""
    if extras:
        object.__setattr__(node, "_extras", dict(extras))
    return node
