# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where each value of a resolved configuration comes from: default, file, command line, derived."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl.config.compose import CommandLine
from verl.config.node import Node
from verl.config.without_effect import MISSING, default_of
from verl.config.without_effect import leaves as key_leaves


@dataclass(frozen=True)
class Leaf:
    """One key of the resolved tree."""

    path: str
    value: Any
    origin: str
    """default: as in the code; file: the YAML says so; CLI: the command line; derived: follows from other keys."""
    is_default: bool
    """Whether the value is the code's default, wherever it comes from."""


def leaves(config: Node, composed: DictConfig, line: CommandLine) -> Iterator[Leaf]:
    """Every leaf of `config.raw` with its origin."""
    given = {override.lstrip("+").partition("=")[0] for override in line.overrides}
    defaults = type(config)()
    for path, value in key_leaves(config.raw):
        is_default = default_of(defaults, path) == value
        yield Leaf(path, value, _origin(path, value, is_default, composed, given), is_default)


def _origin(path: str, value: Any, is_default: bool, composed: DictConfig, given: set[str]) -> str:
    if any(path == key or path.startswith(f"{key}.") for key in given):
        return "CLI"
    written = _written(composed, path)
    if written is MISSING or (isinstance(written, str) and "${" in written) or written != value:
        return "derived"
    return "default" if is_default else "file"


def _written(composed: DictConfig, path: str) -> Any:
    """The value as the files have it: references stay text."""
    section, _, name = path.rpartition(".")
    node = OmegaConf.select(composed, section) if section else composed
    if not isinstance(node, DictConfig) or name not in node:
        return MISSING
    child: Any = node._get_node(name)
    if child._is_interpolation():
        return child._value()
    return OmegaConf.to_container(child, resolve=False) if OmegaConf.is_config(child) else child._value()
