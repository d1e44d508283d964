# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`Worker`, `WorkerGroup`, `ClassWithInitArgs`, `ResourcePool`; loaded on first use, because they need torch."""

from importlib import import_module
from typing import Any

_HOMES = {
    "ClassWithInitArgs": "class_with_init_args",
    "ResourcePool": "resource_pool",
    "Worker": "worker",
    "WorkerGroup": "worker_group",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
