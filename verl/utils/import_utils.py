# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Optional third parties and user code by path."""

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from packaging.version import Version

from verl.errors import ConfigError, UnsupportedError

F = TypeVar("F", bound=Callable[..., Any])


def optional_import(module: str, needed_for: str) -> ModuleType:
    """Import an optional third-party module, or say which setting needs it and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"{needed_for} needs the package {module.split('.')[0]!r}, which cannot be imported here ({error})",
            remedy=f"install it, or change {needed_for.split('=')[0]}",
        ) from error


def is_nvtx_available() -> bool:
    """Whether NVIDIA's `nvtx` package can be imported."""
    return importlib.util.find_spec("nvtx") is not None


def is_vllm_available() -> bool:
    """Whether vLLM is installed."""
    return importlib.util.find_spec("vllm") is not None


def is_version_ge(pkg: str = "vllm", minver: str = "0.7.3") -> bool:
    """Whether the installed distribution `pkg` has at least this version; false where it is not installed."""
    try:
        return Version(importlib.metadata.version(pkg)) >= Version(minver)
    except importlib.metadata.PackageNotFoundError:
        return False


def import_external_libs(external_libs: str | Iterable[str] | None = None) -> None:
    """Import the user's modules, so that what they register is known in this process."""
    for name in [external_libs] if isinstance(external_libs, str) else external_libs or ():
        importlib.import_module(name)


def deprecated(replacement: str = "") -> Callable[[F], F]:
    """Decorator: the first call of the function warns and names `replacement`."""

    def decorate(function: F) -> F:
        hint = f"; use {replacement}" if replacement else ""
        told = False

        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            nonlocal told
            if not told:
                told = True
                warnings.warn(f"{function.__qualname__} is deprecated{hint}", FutureWarning, stacklevel=2)
            return function(*args, **kwargs)

        return inner  # type: ignore[return-value]

    return decorate


def load_module(module_path: str, module_name: str | None = None) -> ModuleType:
    """Load `pkg://module` or a Python file; one load per absolute path, different paths never share a module.

    With `module_name` a file's module is also known under that name in `sys.modules`.
    """
    if module_path.startswith("pkg://"):
        return importlib.import_module(module_path.removeprefix("pkg://").replace("/", ".").removesuffix(".py"))
    file = Path(module_path.removeprefix("file://")).expanduser().resolve()
    if not file.is_file():
        raise ConfigError("no such Python file", where=module_path, remedy="give an existing .py file or pkg://module")
    stem = file.stem.replace("-", "_").replace(" ", "_")
    name = f"verl_user_{stem}_{hashlib.sha1(str(file).encode()).hexdigest()[:10]}"
    module = sys.modules.get(name) or _load_file(name, file)
    if module_name is not None:
        sys.modules[module_name] = module
    return module


def _load_file(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError("not a Python file", where=str(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_extern_object(module_path: str, object_name: str) -> Any:
    """`object_name` from a file or `pkg://module`; a missing name is answered with the names there are."""
    module = load_module(module_path)
    if not hasattr(module, object_name):
        public = [item for item in vars(module) if not item.startswith("_")]
        raise ConfigError(f"no {object_name!r} in {module_path}", remedy=f"it defines: {', '.join(sorted(public))}")
    return getattr(module, object_name)


@deprecated(replacement="load_extern_object")
def load_extern_type(file_path: str, type_name: str) -> type:
    """`load_extern_object` under its old name."""
    return load_extern_object(file_path, type_name)


def load_class_from_fqn(fqn: str, description: str = "class") -> Any:
    """The object at a dotted path such as `package.module.Class`."""
    module_name, _, name = fqn.rpartition(".")
    if not module_name:
        raise ConfigError(f"{description} must be given as package.module.Name", got=fqn)
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{description} {fqn!r} cannot be loaded ({error})") from error
