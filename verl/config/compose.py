# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hydra's command line and composition, with unknown keys answered by us instead of by a struct error."""

import argparse
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hydra import compose, initialize_config_dir, initialize_config_module
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl.config.backend_bound import TRAINING_BACKENDS, foreign_backend, refuse_training_backend
from verl.config.schema import nearest
from verl.errors import ConfigError, UnsupportedError

logger = logging.getLogger(__name__)

COMMON_CONFIG = "pkg://verl.trainer.config"


@dataclass(frozen=True)
class CommandLine:
    """What the user typed: overrides, and where the primary configuration is."""

    overrides: tuple[str, ...]
    config_name: str
    config_module: str
    config_path: str | None = None
    config_dir: str | None = None
    show: str | None = None
    resolve: bool = False
    help: bool = False

    def given(self, key: str) -> bool:
        """Whether an override sets `key`."""
        return any(override.lstrip("+").partition("=")[0] == key for override in self.overrides)


def parse_command_line(argv: Sequence[str], config_module: str, config_name: str) -> CommandLine:
    """Hydra's flags and overrides; what makes no sense here (multirun) is refused."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = _raise_usage  # type: ignore[method-assign]
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--config-name", "-cn", default=config_name)
    parser.add_argument("--config-path", "-cp")
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--cfg", "-c", choices=["job"])
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--multirun", "-m", action="store_true")
    known = parser.parse_intermixed_args(list(argv))
    if known.multirun:
        raise UnsupportedError(
            "multirun is not part of this package", where="--multirun", remedy="start one job per setting from a shell"
        )
    name = known.config_name.removesuffix(".yaml")
    for backend in TRAINING_BACKENDS:
        if f"_{backend}_" in name:
            refuse_training_backend(backend, f"--config-name={name}")
    return CommandLine(
        tuple(known.overrides),
        name,
        config_module,
        known.config_path,
        known.config_dir,
        known.cfg,
        known.resolve,
        known.help,
    )


def compose_config(line: CommandLine) -> DictConfig:
    """The composed configuration, unresolved.

    Raises
    ------
    ConfigError
        unknown key (with the nearest known one), malformed override, missing file.
    """
    overrides = list(_own_overrides(_parse(line.overrides)))
    lines: list[Any] = [override.input_line for override in overrides]
    _register_search_path(line.config_dir)
    try:
        with _initialized(line):
            return compose(line.config_name, overrides=lines)
    except (HydraException, OmegaConfBaseException) as error:
        _explain_key_errors(line, overrides)
        raise ConfigError(_first_lines(error), where=f"--config-name={line.config_name}") from error


def _parse(lines: Sequence[str]) -> list[Override]:
    parser = OverridesParser.create()
    parsed = []
    for line in lines:
        try:
            parsed += parser.parse_overrides([line])
        except HydraException as error:
            remedy = "write key=value; quote values with spaces, commas or braces for the shell and for Hydra"
            raise ConfigError("this is not an override", where=line, remedy=remedy) from error
    return parsed


def _own_overrides(overrides: Sequence[Override]) -> Iterator[Override]:
    """Without those of backends that are left out: refused if one chooses the backend, else one warning each."""
    for override in overrides:
        key = override.key_or_group
        if key == "model_engine" and override.value() != "dp":
            refuse_training_backend(str(override.value()), "model_engine")
        if foreign_backend(key) and not key.endswith((".lora", ".load_weight")) and ".model.lora." not in key:
            logger.warning("%s belongs to a backend that is not part of this package; without effect", key)
            continue
        yield override


def _initialized(line: CommandLine) -> initialize_config_dir | initialize_config_module:
    if line.config_path is None:
        return initialize_config_module(line.config_module, version_base=None)
    path = Path(line.config_path).expanduser()
    if not path.is_absolute() and not path.is_dir():
        # Hydra counts a relative path from the program's package.
        package = line.config_module.rpartition(".")[0]
        return initialize_config_module(f"{package}.{line.config_path.replace('/', '.')}", version_base=None)
    return initialize_config_dir(str(path.resolve()), version_base=None)


class _CommonSearchPath(SearchPathPlugin):
    """Makes verl's own groups known to every primary configuration, wherever it lives."""

    config_dir: str | None = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if self.config_dir is not None:
            search_path.append("command-line", os.path.abspath(os.path.expanduser(self.config_dir)))
        search_path.append("verl", COMMON_CONFIG)


def _register_search_path(config_dir: str | None) -> None:
    _CommonSearchPath.config_dir = config_dir
    Plugins.instance().register(_CommonSearchPath)


def _explain_key_errors(line: CommandLine, overrides: Sequence[Override]) -> None:
    """Raise our own error for the first override whose key does not fit the configuration, if there is one."""
    try:
        with _initialized(line):
            base = compose(line.config_name)
    except (HydraException, OmegaConfBaseException):
        return
    known = list(key_paths(base))
    for override in overrides:
        key = override.key_or_group
        if override.package is not None or key.startswith("hydra"):
            continue
        exists = key in known
        if override.is_add() and not override.is_force_add() and exists:
            raise ConfigError("the key exists already", where=key, remedy=f"write {key}=… without the +")
        if not exists and not override.is_add() and not override.is_force_add():
            _raise_unknown_key(override, known)


def _raise_unknown_key(override: Override, known: Sequence[str]) -> None:
    key = override.key_or_group
    section, _, name = key.rpartition(".")
    siblings = {path.rpartition(".")[2]: path for path in known if path.rpartition(".")[0] == section}
    near = nearest(name, siblings)
    guess = siblings[near] if near else nearest(key, known)
    hint = f"Did you mean {guess}? " if guess else ""
    raise ConfigError("unknown key", where=key, remedy=f"{hint}A key that the YAML does not have is added as +{key}=…")


def key_paths(node: DictConfig, prefix: str = "") -> Iterator[str]:
    """Every dotted key path of a configuration, sections included."""
    key: Any
    for key in node:
        path = f"{prefix}.{key}" if prefix else str(key)
        yield path
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not (child._is_none() or child._is_missing() or child._is_interpolation()):
            yield from key_paths(child, path)


def as_yaml(config: DictConfig, resolve: bool) -> str:
    """The composed tree as YAML."""
    return OmegaConf.to_yaml(config, resolve=resolve)


def _raise_usage(message: str) -> NoReturn:
    raise ConfigError(message, where="command line", remedy="--help shows what is understood")


def _first_lines(error: Exception) -> str:
    return " ".join(str(error).split("\n")[:3]).strip()
