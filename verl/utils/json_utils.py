# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Any value as strict JSON: numbers stay numbers, arrays become lists, and no value can stop the run that logs it."""

import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Set
from datetime import date, datetime, time
from enum import Enum
from typing import Any

import numpy as np


def to_jsonable(value: Any) -> Any:
    """`value` as None, bool, int, float, str, list and dict only.

    NumPy and torch scalars become JSON numbers and booleans, arrays and tensors (nested) lists, NaN and the
    infinities null (JSON has neither), bytes text, dataclasses and mappings objects with text keys, sets sorted
    lists; any other object becomes its `str`.
    """
    return _convert(value, ())


def dumps(value: Any) -> str:
    """One line of strict JSON for any value; text stays readable instead of being escaped to ASCII."""
    return json.dumps(to_jsonable(value), ensure_ascii=False, allow_nan=False)


def _convert(value: Any, parents: tuple[int, ...]) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Enum):
        return _convert(value.value, parents)
    if isinstance(value, np.generic):
        return _convert_numpy_scalar(value, parents)
    if isinstance(value, np.ndarray):
        return _convert(value.tolist(), parents)
    if _is_tensor(value):
        return _convert(_tensor_to_python(value), parents)
    if isinstance(value, int | str):
        return int(value) if isinstance(value, int) else str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", errors="backslashreplace")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return _convert_container(value, parents)


def _convert_container(value: Any, parents: tuple[int, ...]) -> Any:
    if id(value) in parents:
        return f"<{type(value).__name__} that contains itself>"
    inside = (*parents, id(value))
    if isinstance(value, Mapping):
        return {_key(key): _convert(item, inside) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_convert(item, inside) for item in value]
    if isinstance(value, Set):
        return [_convert(item, inside) for item in sorted(value, key=repr)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _convert(getattr(value, field.name), inside) for field in dataclasses.fields(value)}
    return _text(value)


def _convert_numpy_scalar(value: np.generic, parents: tuple[int, ...]) -> Any:
    plain = value.item()
    # Long doubles and nanosecond dates have no Python twin: item() gives them back, or a bare count.
    if isinstance(plain, np.generic) or isinstance(value, np.datetime64 | np.timedelta64):
        return _convert(float(plain), parents) if isinstance(plain, np.floating) else str(value)
    return _convert(plain, parents)


def _is_tensor(value: Any) -> bool:
    # A value can only be a tensor where torch is loaded; control processes never load it.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _tensor_to_python(tensor: Any) -> Any:
    if hasattr(tensor, "full_tensor"):
        # A DTensor's values live on several ranks; gathering here could hang one that logs alone.
        return _text(tensor)
    return tensor.detach().cpu().tolist()


def _key(key: Any) -> str:
    plain = to_jsonable(key)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # an object whose __str__ raises must not end a run that only logs it
        return f"<{type(value).__name__} whose str() raises {type(error).__name__}>"
