# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Optional third parties and user code by path."""

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from verl.errors import ConfigError, UnsupportedError


def optional_import(module: str, needed_for: str) -> ModuleType:
    """Import an optional third-party module, or say which setting needs it and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"{needed_for} needs the package {module.split('.')[0]!r}, which cannot be imported here ({error})",
            remedy=f"install it, or change {needed_for.split('=')[0]}",
        ) from error


def load_module(path: str) -> ModuleType:
    """Load `pkg://module` or a Python file; one load per absolute path, different paths never share a module."""
    if path.startswith("pkg://"):
        return importlib.import_module(path.removeprefix("pkg://").replace("/", ".").removesuffix(".py"))
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ConfigError("no such Python file", where=path, remedy="give an existing .py file or pkg://module")
    name = (
        f"verl_user_{file.stem.replace('-', '_').replace(' ', '_')}_{hashlib.sha1(str(file).encode()).hexdigest()[:10]}"
    )
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError("not a Python file", where=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_extern_object(path: str, name: str) -> Any:
    """`name` from a file or `pkg://module`; a missing name is answered with the names there are."""
    module = load_module(path)
    if not hasattr(module, name):
        public = [item for item in vars(module) if not item.startswith("_")]
        raise ConfigError(f"no {name!r} in {path}", remedy=f"it defines: {', '.join(sorted(public))}")
    return getattr(module, name)


def load_class_from_fqn(fqn: str, description: str = "class") -> Any:
    """The object at a dotted path such as `package.module.Class`."""
    module_name, _, name = fqn.rpartition(".")
    if not module_name:
        raise ConfigError(f"{description} must be given as package.module.Name", got=fqn)
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{description} {fqn!r} cannot be loaded ({error})") from error
