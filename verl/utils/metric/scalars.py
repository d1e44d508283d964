# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The numbers among a step's metrics, and the one line that a person reads."""

import numbers
from collections.abc import Mapping
from typing import Any

from verl.utils.json_utils import to_jsonable

__all__ = ["scalars", "step_line"]


def scalars(data: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are single numbers, as floats (booleans as 0 and 1, NaN kept)."""
    found = {}
    for name, value in data.items():
        if isinstance(value, float):
            found[name] = float(value)
            continue
        # NumPy and torch scalars, without importing either library.
        plain = to_jsonable(value)
        if isinstance(plain, numbers.Real):
            found[name] = float(plain)
        elif plain is None and value is not None:
            found[name] = float(value)
    return found


def step_line(data: Mapping[str, Any], step: int) -> str:
    """`step:3 - name:value - …` with the numbers of `data`; other values are left out."""
    return " - ".join([f"step:{step}", *(f"{name}:{value:.6g}" for name, value in scalars(data).items())])
