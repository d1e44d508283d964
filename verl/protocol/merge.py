# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""How the three parts of two batches are joined, and what counts as a conflict."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from verl.errors import DataError
from verl.protocol.columns import same_value
from verl.protocol.td import TensorDict

V = TypeVar("V")


def union_tensor_dict(tensor_dict1: TensorDict, tensor_dict2: TensorDict) -> TensorDict:
    """Add the tensors of the second to the first, in place; a shared key must hold equal tensors (NaN equals NaN)."""
    if tensor_dict1.batch_size != tensor_dict2.batch_size:
        raise DataError(
            "two batches of different size cannot be united",
            got=f"{tuple(tensor_dict1.batch_size)} and {tuple(tensor_dict2.batch_size)}",
        )
    known = set(tensor_dict1.keys())
    for key, tensor in tensor_dict2.items():
        if key not in known:
            tensor_dict1[key] = tensor
        elif not same_value(tensor_dict1[key], tensor):
            raise DataError("both batches have this tensor, with different values", where=key)
    return tensor_dict1


def union_numpy_dict(tensor_dict1: dict[str, np.ndarray], tensor_dict2: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add the columns of the second to the first, in place; a shared key must hold equal columns (NaN equals NaN)."""
    return _union(tensor_dict1, tensor_dict2, "column")


def union_meta_info(meta_info1: dict[str, Any], meta_info2: dict[str, Any]) -> dict[str, Any]:
    """Add the entries of the second to the first, in place; a shared key must hold equal values."""
    return _union(meta_info1, meta_info2, "meta_info entry")


def _union(first: dict[str, V], second: dict[str, V], kind: str) -> dict[str, V]:
    for key, value in second.items():
        if key in first and not same_value(first[key], value):
            raise DataError(f"both batches have this {kind}, with different values", where=key)
        first[key] = value
    return first


def concat_meta_info(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One meta_info for the rows of all parts.

    `metrics` becomes a dict of lists with the values of every part; `timing` the longest time of any part;
    any other key must agree wherever it is present.
    """
    merged: dict[str, Any] = {}
    metrics: dict[str, list[Any]] = {}
    for part in parts:
        for key, value in part.items():
            if key == "metrics":
                _append_metrics(metrics, value)
            elif key == "timing" and isinstance(value, dict):
                known = merged.get(key, {})
                merged[key] = known | {name: max(seconds, known.get(name, seconds)) for name, seconds in value.items()}
            elif key in merged and not same_value(merged[key], value):
                raise DataError(
                    "the parts disagree on this meta_info entry", where=key, got=f"{merged[key]!r} and {value!r}"
                )
            else:
                merged[key] = value
    if metrics or any("metrics" in part for part in parts):
        merged["metrics"] = metrics
    return merged


def _append_metrics(metrics: dict[str, list[Any]], value: dict[str, Any] | Iterable[dict[str, Any]] | None) -> None:
    if value is None:
        return
    for entry in [value] if isinstance(value, dict) else value:
        for name, number in entry.items():
            metrics.setdefault(name, []).extend(number if isinstance(number, list) else [number])
