# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Row operations on one column of a batch: a dense tensor, a jagged nested tensor, or a NumPy array.

Rows are the first dimension. A jagged tensor keeps its layout and its ragged dimension through every operation,
also where all rows happen to have the same length.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from verl.errors import DataError

Column = torch.Tensor | np.ndarray


def object_column(values: Iterable[Any]) -> np.ndarray:
    """A 1-D object array with one element per row; equal-length lists stay lists."""
    rows = values.tolist() if isinstance(values, np.ndarray) else list(values)
    column = np.empty(len(rows), dtype=object)
    for row, value in enumerate(rows):
        column[row] = value
    return column


def as_column(values: Any) -> np.ndarray:
    """Any sequence of per-row values as a NumPy column; typed arrays keep their dtype, everything else is object."""
    if isinstance(values, np.ndarray) and values.ndim >= 1 and (values.dtype != object or values.ndim == 1):
        return values
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise DataError("a column needs one value per row", got=type(values).__name__, expected="a sequence")
    return object_column(values)


def rows_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The rows of a jagged tensor."""
    return list(tensor.unbind())


def nest(rows: Sequence[torch.Tensor], ragged_dim: int = 1) -> torch.Tensor:
    """Rows to a jagged tensor that is ragged in `ragged_dim` of the batch (1 = first dimension of a row)."""
    if not rows:
        raise DataError("a jagged tensor needs at least one row")
    values = torch.cat(list(rows), dim=ragged_dim - 1)
    lengths = torch.tensor([row.shape[ragged_dim - 1] for row in rows], device=values.device)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return torch.nested.nested_tensor_from_jagged(values, offsets, jagged_dim=ragged_dim)


def ragged_dim_of(tensor: torch.Tensor) -> int:
    """Dimension of the batch in which a jagged tensor is ragged."""
    # torch has no public accessor for it; nested_tensor_from_jagged takes the same number as `jagged_dim`.
    return tensor._ragged_idx  # type: ignore[attr-defined]  # of NestedTensor


def offsets_of(tensor: torch.Tensor) -> torch.Tensor:
    """Where each row of a jagged tensor starts and the last one ends, [B + 1]."""
    return tensor.offsets()  # type: ignore[attr-defined]  # of NestedTensor


def ragged_lengths(tensor: torch.Tensor) -> torch.Tensor:
    """Length of each row along the ragged dimension, [B]."""
    return offsets_of(tensor).diff()


def num_rows(column: Column) -> int:
    """Number of rows."""
    return int(column.size(0)) if isinstance(column, torch.Tensor) else len(column)


def take(column: Column, rows: np.ndarray) -> Column:
    """A copy of the given rows, in the given order."""
    if isinstance(column, np.ndarray):
        return column[rows]
    if column.is_nested:
        parts = rows_of(column)
        return nest([parts[row] for row in rows], ragged_dim_of(column))
    return column[torch.from_numpy(np.ascontiguousarray(rows)).to(column.device)]


def cut(column: Column, span: slice) -> Column:
    """The rows of a slice; a view where the column is dense."""
    if isinstance(column, torch.Tensor) and (column.is_nested or (span.step or 1) < 0):
        return take(column, np.arange(num_rows(column))[span])
    return column[span]


def join(columns: Sequence[Any], key: str) -> Column:
    """The rows of all columns, which are of one kind (`Column`), one after another."""
    first = columns[0]
    if isinstance(first, np.ndarray):
        if all(column.shape[1:] == first.shape[1:] for column in columns):
            return np.concatenate(columns)
        return object_column(value for column in columns for value in column.tolist())
    if any(column.is_nested != first.is_nested for column in columns):
        raise DataError("some parts are ragged and some are dense", where=key)
    if first.is_nested:
        return nest([row for column in columns for row in rows_of(column)], ragged_dim_of(first))
    try:
        return torch.cat(list(columns))
    except RuntimeError as error:
        shapes = [tuple(column.shape) for column in columns]
        raise DataError("the parts have shapes that cannot be joined", where=key, got=shapes) from error


def same_value(a: Any, b: Any) -> bool:
    """Deep equality in which NaN equals NaN; works on tensors, arrays of any rank and nested Python values."""
    if a is b:
        return True
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and _same_tensor(a, b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and _same_array(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, float | np.floating) and isinstance(b, float | np.floating) and a != a:
        return bool(b != b)
    return bool(a == b)


def _same_tensor(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_nested or b.is_nested:
        return a.is_nested == b.is_nested and all(map(same_value, rows_of(a), rows_of(b)))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    b = b.to(a.device)
    if a.is_floating_point() or a.is_complex():
        return bool(((a == b) | (a.isnan() & b.isnan())).all())
    return torch.equal(a, b)


def _same_array(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype == object or b.dtype == object:
        return all(map(same_value, a.ravel(), b.ravel()))
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc" and b.dtype.kind in "fc")
