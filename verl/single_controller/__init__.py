# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One driver calls many ranks: names of `verl.single_controller.base`."""

from typing import Any

from verl.single_controller import base

__all__ = base.__all__


def __getattr__(name: str) -> Any:
    # Control processes import the Ray bootstrap from this package and must not load torch with it.
    if name in __all__:
        return getattr(base, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
