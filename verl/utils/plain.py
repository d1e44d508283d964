# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plain Python values out of what parquet, numpy and torch hand over."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def to_plain(value: Any) -> Any:
    """The same value without numpy, recursively: arrays become lists, scalars Python numbers, mappings dicts.

    Anything else (bytes, images, user objects) is returned as it is.
    """
    if value is None or (isinstance(value, str | bytes | bool | int | float) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return [to_plain(item) for item in value.tolist()]
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value
