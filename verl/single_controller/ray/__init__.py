# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Worker groups of Ray actors; names load on first use, so that `bootstrap` and `pool` stay free of torch."""

from importlib import import_module
from typing import Any

_HOMES = {
    "RayClassWithInitArgs": "actor_class",
    "RayResourcePool": "pool",
    "RayWorkerGroup": "group",
    "ResourcePoolManager": "pool",
    "SubRayResourcePool": "pool",
    "create_colocated_worker_cls": "colocate",
    "create_colocated_worker_cls_fused": "colocate",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
