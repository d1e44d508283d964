# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Functions from batches to batches with other rows: concat, chunk, split, repeat, pad, fold."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from verl.errors import DataError
from verl.protocol.columns import join, num_rows
from verl.protocol.merge import concat_meta_info
from verl.protocol.td import TensorDict

if TYPE_CHECKING:
    from verl.protocol.data_proto import DataProto, DataProtoItem

D = TypeVar("D", bound="DataProto")


def concat(data: Sequence[D]) -> D:
    """The rows of all parts, which must have the same columns."""
    if not data:
        raise DataError("nothing to concatenate", got="an empty list of batches")
    # After the check below, all tensors or all None.
    batches: list[Any] = [part.batch for part in data]
    if any(batch is None for batch in batches) and not all(batch is None for batch in batches):
        raise DataError("some parts have tensors and some have none")
    batch = None
    if batches[0] is not None:
        tensors = _join_all([dict(batch.items()) for batch in batches], "tensors")
        rows = sum(batch.batch_size[0] for batch in batches)
        batch = TensorDict(tensors, batch_size=[rows, *batches[0].batch_size[1:]])
    columns = _join_all([part.non_tensor_batch for part in data], "columns")
    meta_info = concat_meta_info([part.meta_info for part in data])
    return replace(data[0], batch=batch, non_tensor_batch=columns, meta_info=meta_info)


def _join_all(parts: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    keys = parts[0].keys()
    for part in parts[1:]:
        if part.keys() != keys:
            odd = sorted(part.keys() ^ keys)
            raise DataError(f"the parts have different {kind}", got=odd, remedy="select the shared keys first")
    return {key: join([part[key] for part in parts], key) for key in keys}


def chunk(data: D, chunks: int) -> list[D]:
    """`chunks` parts in row order whose sizes differ by at most one, the larger first."""
    if chunks < 1 or len(data) < chunks:
        raise DataError("there are fewer rows than parts", got=f"{len(data)} rows for {chunks} parts")
    size, extra = divmod(len(data), chunks)
    ends = np.cumsum([size + (part < extra) for part in range(chunks)])
    return [data.slice(int(start), int(end)) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def split(data: D, split_size: int) -> list[D]:
    """Parts of `split_size` rows; the last may be smaller."""
    if split_size < 1:
        raise DataError("a part needs at least one row", got=split_size)
    return [data.slice(start, start + split_size) for start in range(0, len(data), split_size)]


def repeat(data: D, repeat_times: int, interleave: bool) -> D:
    """Each row `repeat_times` times: next to each other, or the whole batch over and over."""
    rows = np.arange(len(data))
    return data.select_idxs(np.repeat(rows, repeat_times) if interleave else np.tile(rows, repeat_times))


def sample_level_repeat(data: D, repeat_times: Sequence[int] | np.ndarray | torch.Tensor) -> D:
    """Row i `repeat_times[i]` times; zero leaves it out."""
    counts = np.asarray(torch.as_tensor(repeat_times).cpu())
    if counts.shape != (len(data),) or (counts < 0).any():
        raise DataError("one count of at least zero per row", got=counts.tolist(), expected=f"{len(data)} counts")
    return data.select_idxs(np.repeat(np.arange(len(data)), counts))


def pad_with_row(data: D, padding_size: int, candidate: str) -> D:
    """Append `padding_size` copies of the "first" or the "last" row."""
    if candidate not in ("first", "last"):
        raise DataError("the row to pad with is 'first' or 'last'", got=candidate)
    if padding_size == 0:
        return data
    if len(data) == 0:
        raise DataError("an empty batch has no row to pad with")
    row = 0 if candidate == "first" else len(data) - 1
    return data.select_idxs(np.concatenate([np.arange(len(data)), np.full(padding_size, row)]))


def pad_dataproto_to_divisor(data: "DataProto", size_divisor: int) -> "tuple[DataProto, int]":
    """Append rows from the front, as often as needed, until the length divides by `size_divisor`.

    Returns the batch and the number of rows added; `unpad_dataproto` takes them away again.
    """
    if size_divisor < 1:
        raise DataError("the divisor must be at least one", got=size_divisor)
    pad_size = -len(data) % size_divisor
    if pad_size == 0:
        return data, 0
    return data.select_idxs(np.arange(len(data) + pad_size) % len(data)), pad_size


def unpad_dataproto(data: "DataProto", pad_size: int) -> "DataProto":
    """Drop the last `pad_size` rows."""
    return data.slice(0, len(data) - pad_size) if pad_size else data


def fold_batch_dim(data: "DataProto", new_batch_size: int) -> "DataProto":
    """[B, …] to [new_batch_size, B / new_batch_size, …] for every tensor and column."""
    if new_batch_size < 1 or len(data) % new_batch_size:
        raise DataError("the batch does not fold", got=f"{len(data)} rows into {new_batch_size}")
    inner = len(data) // new_batch_size
    return _with_shape(data, lambda shape: (new_batch_size, inner, *shape[1:]), new_batch_size)


def unfold_batch_dim(data: "DataProto", batch_dims: int = 2) -> "DataProto":
    """The inverse of `fold_batch_dim`: the first `batch_dims` dimensions become one."""
    lead = None
    for column in [*(data.batch.values() if data.batch is not None else ()), *data.non_tensor_batch.values()]:
        lead = lead or tuple(column.shape[:batch_dims])
        if tuple(column.shape[:batch_dims]) != lead:
            raise DataError("the columns disagree on the folded dimensions", got=tuple(column.shape), expected=lead)
    rows = int(np.prod(lead)) if lead else 0
    return _with_shape(data, lambda shape: (rows, *shape[batch_dims:]), rows)


def _with_shape(data: D, shape_of: Any, rows: int) -> D:
    batch = None
    if data.batch is not None:
        tensors = {key: tensor.reshape(shape_of(tensor.shape)) for key, tensor in data.batch.items()}
        batch = TensorDict(tensors, batch_size=[rows])
    columns = {key: column.reshape(shape_of(column.shape)) for key, column in data.non_tensor_batch.items()}
    return replace(data, batch=batch, non_tensor_batch=columns)


def unfold_column_chunks(data: D, n_split: int, split_keys: Sequence[str] | None) -> D:
    """Cut dimension 1 of `split_keys` into `n_split` equal pieces; piece j of row i becomes row i * n_split + j.

    Columns that are not named are repeated, so that every piece keeps its row's facts.
    """
    wanted = set(split_keys or ())

    def unfold(key: str, column: Any) -> Any:
        if key not in wanted:
            repeated = np.repeat(np.arange(num_rows(column)), n_split)
            return column[torch.from_numpy(repeated)] if isinstance(column, torch.Tensor) else column[repeated]
        if column.ndim < 2 or column.shape[1] % n_split:
            raise DataError(
                "the second dimension does not divide", where=key, got=tuple(column.shape), expected=n_split
            )
        return column.reshape(column.shape[0] * n_split, column.shape[1] // n_split, *column.shape[2:])

    batch = None
    if data.batch is not None:
        tensors = {key: unfold(key, tensor) for key, tensor in data.batch.items()}
        batch = TensorDict(tensors, batch_size=[data.batch.batch_size[0] * n_split])
    columns = {key: unfold(key, column) for key, column in data.non_tensor_batch.items()}
    return replace(data, batch=batch, non_tensor_batch=columns)


def stack_items(items: "Sequence[DataProtoItem]") -> tuple[TensorDict | None, dict[str, list[Any]]]:
    """Rows to columns: tensors stacked, everything else in lists."""
    if not items:
        raise DataError("nothing to collate", got="an empty list of rows")
    batch = None
    if items[0].batch is not None:
        batches: list[Any] = [item.batch for item in items]
        keys = items[0].batch.keys()
        tensors = {key: torch.stack([row[key] for row in batches]) for key in keys}
        batch = TensorDict(tensors, batch_size=[len(items)])
    return batch, {key: [item.non_tensor_batch[key] for item in items] for key in items[0].non_tensor_batch}
