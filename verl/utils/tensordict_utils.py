# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Batches as bare `TensorDict`s: tensors [B, …], nested tensors (rows of unequal length), lists of B objects, facts.

A list of B objects is a `NonTensorStack`, one fact for the whole batch a `NonTensorData`. `get`, `pop` and
`get_non_tensor_data` give both back as plain Python. The trainers here carry `DataProto`; recipes may carry these.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from verl.errors import DataError
from verl.protocol.columns import join, nest, same_value, take
from verl.protocol.merge import union_tensor_dict
from verl.protocol.td import NonTensorData, NonTensorStack, TensorDict

__all__ = [
    "assert_tensordict_eq",
    "assign_non_tensor",
    "assign_non_tensor_data",
    "assign_non_tensor_stack",
    "chunk_tensordict",
    "concat_nested_tensors",
    "concat_tensordict",
    "concat_tensordict_with_none_bsz",
    "contiguous",
    "get",
    "get_keys",
    "get_non_tensor_data",
    "get_tensordict",
    "index_select_tensor_dict",
    "list_of_dict_to_tensordict",
    "make_iterator",
    "maybe_fix_3d_position_ids",
    "pad_to_divisor",
    "pop",
    "pop_keys",
    "union_tensor_dict",
    "unpad",
    "unwrap_non_tensor_data",
]

_ABSENT: Any = object()


# ---- objects and facts ----------------------------------------------------------------------------------------------


def assign_non_tensor_data(tensor_dict: TensorDict, key: str, val: Any) -> None:
    """Set one fact of the whole batch."""
    _put(tensor_dict, key, NonTensorData(val, batch_size=tensor_dict.batch_size))


def assign_non_tensor_stack(tensor_dict: TensorDict, key: str, val: list[Any]) -> None:
    """Set one object for each row; `val` has as many as the batch has rows."""
    if not isinstance(val, list):
        raise DataError("one object for each row is a list", where=key, got=type(val).__name__, expected="list")
    rows = _rows(tensor_dict)
    if rows is not None and len(val) != rows:
        raise DataError("one object for each row", where=key, got=f"{len(val)} objects", expected=f"{rows}")
    _put(tensor_dict, key, _stack(key, val))


def assign_non_tensor(tensor_dict: TensorDict, **kwargs: Any) -> None:
    """Set several: a list is one object for each row, anything else a fact of the whole batch."""
    for key, value in kwargs.items():
        if isinstance(value, NonTensorData | NonTensorStack):
            _put(tensor_dict, key, value)
        elif isinstance(value, list):
            assign_non_tensor_stack(tensor_dict, key, value)
        else:
            assign_non_tensor_data(tensor_dict, key, value)


def unwrap_non_tensor_data(data: Any) -> Any:
    """The object inside a `NonTensorData`; anything else as it is."""
    return data.data if isinstance(data, NonTensorData) else data


def get_non_tensor_data(data: TensorDict, key: str, default: Any) -> Any:
    """The fact at `key`, or `default`."""
    return unwrap_non_tensor_data(data.get(key, default))


def get(tensordict: TensorDict, key: str, default: Any = None) -> Any:
    """The tensor, the list of objects or the fact at `key`, or `default`."""
    return _plain(tensordict.get(key, default))


def pop(tensordict: TensorDict, key: str, default: Any = None) -> Any:
    """As `get`, and the key is gone."""
    value = tensordict.get(key, _ABSENT)
    if value is _ABSENT:
        return default
    del tensordict[key]
    return _plain(value)


def get_keys(tensordict: TensorDict, keys: Iterable[str]) -> TensorDict:
    """Another TensorDict with these keys; a missing one is an error."""
    return _rebuilt(tensordict, {key: _present(tensordict, key) for key in keys})


def pop_keys(tensordict: TensorDict, keys: Iterable[str]) -> TensorDict:
    """As `get_keys`, and the keys are gone."""
    popped = get_keys(tensordict, list(keys))
    for key in _keys(popped):
        del tensordict[key]
    return popped


def get_tensordict(
    tensor_dict: dict[str, Tensor | list[Any]], non_tensor_dict: dict[str, Any] | None = None
) -> TensorDict:
    """A TensorDict of columns (tensors, nested tensors, lists, all of B rows) and of facts of the whole batch.

    Raises
    ------
    DataError
        where columns differ in length, or a list holds tensors.
    """
    lengths = {key: _length(value) for key, value in tensor_dict.items()}
    if len(set(lengths.values())) > 1:
        raise DataError("columns of one batch have one length", got=lengths)
    made = TensorDict({}, batch_size=list(lengths.values())[:1])
    for key, value in tensor_dict.items():
        _put(made, key, _stack(key, value) if isinstance(value, list) else value)
    for key, value in (non_tensor_dict or {}).items():
        assign_non_tensor_data(made, key, value)
    return made


def list_of_dict_to_tensordict(list_of_dicts: list[dict[str, Any]]) -> TensorDict:
    """One row for each dict: numbers of no dimension are stacked, longer tensors nested, other objects a list."""
    if not list_of_dicts:
        raise DataError("no rows", expected="at least one dict")
    keys = list_of_dicts[0].keys()
    for index, row in enumerate(list_of_dicts):
        if row.keys() != keys:
            raise DataError("rows of one batch have one set of keys", where=f"row {index}", got=sorted(row))
    return get_tensordict({key: _column([row[key] for row in list_of_dicts]) for key in keys})


# ---- rows -----------------------------------------------------------------------------------------------------------


def concat_nested_tensors(tensors: list[Tensor]) -> Tensor:
    """The rows of several nested tensors as one."""
    for index, tensor in enumerate(tensors):
        if not tensor.is_nested:
            raise DataError("a dense tensor among nested ones", where=f"tensor {index}", got=tuple(tensor.shape))
    joined: Any = join(tensors, "nested tensors")
    return joined


def concat_tensordict(data: list[TensorDict]) -> TensorDict:
    """The rows of several batches with the same keys, one after another; facts are those of the first."""
    if not data:
        raise DataError("nothing to join", expected="at least one TensorDict")
    _same_keys(data)
    if _rows(data[0]) is None:
        return concat_tensordict_with_none_bsz(data)
    joined = {key: _concat(key, [_present(part, key) for part in data]) for key in _keys(data[0])}
    return _rebuilt(data[0], joined, sum(len(part) for part in data))


def concat_tensordict_with_none_bsz(data: list[TensorDict]) -> TensorDict:
    """Batches without rows hold facts only: the first of them."""
    for part in data:
        if len(part.batch_size):
            raise DataError("a batch without rows was expected", got=tuple(part.batch_size), expected="no batch size")
    return data[0]


def index_select_tensor_dict(batch: TensorDict, indices: Tensor | list[int]) -> TensorDict:
    """The rows `indices` (places, or a mask of B booleans), in that order; facts stay."""
    chosen = torch.as_tensor(indices)
    if chosen.dtype == torch.bool:
        chosen = chosen.nonzero().flatten()
    places = chosen.long().tolist()
    return _rebuilt(batch, {key: _take(_present(batch, key), places) for key in _keys(batch)}, len(places))


def chunk_tensordict(td: TensorDict, chunks: int) -> list[TensorDict]:
    """`chunks` batches of equal size, in order."""
    rows = len(td)
    if chunks < 1 or rows % chunks:
        raise DataError("the batch must divide into chunks", got=f"{rows} rows by {chunks}")
    size = rows // chunks
    return [index_select_tensor_dict(td, list(range(start, start + size))) for start in range(0, rows, size)]


def pad_to_divisor(data: TensorDict, size_divisor: int) -> tuple[TensorDict, int]:
    """Append rows from the front until the length divides by `size_divisor`; the batch and the number of rows added."""
    if size_divisor < 1:
        raise DataError("the divisor must be at least one", got=size_divisor)
    pad_size = -len(data) % size_divisor
    if pad_size == 0:
        return data, 0
    return index_select_tensor_dict(data, [row % len(data) for row in range(len(data) + pad_size)]), pad_size


def unpad(data: TensorDict, pad_size: int) -> TensorDict:
    """Drop the last `pad_size` rows."""
    return index_select_tensor_dict(data, list(range(len(data) - pad_size))) if pad_size else data


def make_iterator(
    tensordict: TensorDict,
    mini_batch_size: int,
    epochs: int,
    seed: int | None = None,
    dataloader_kwargs: dict[str, Any] | None = None,
) -> Iterator[TensorDict]:
    """Mini-batches of `mini_batch_size` rows for `epochs` passes; `dataloader_kwargs` go to torch's DataLoader."""
    if mini_batch_size < 1 or len(tensordict) % mini_batch_size:
        raise DataError("the batch must divide into mini-batches", got=f"{len(tensordict)} rows by {mini_batch_size}")
    # Any sequence does as a data set.
    rows: Any = range(len(tensordict))
    loader: DataLoader[Any] = DataLoader(
        rows,
        batch_size=mini_batch_size,
        collate_fn=lambda chosen: index_select_tensor_dict(tensordict, chosen),
        generator=None if seed is None else torch.Generator().manual_seed(seed),
        **(dataloader_kwargs or {}),
    )
    return (mini_batch for _ in range(epochs) for mini_batch in loader)


# ---- the whole ------------------------------------------------------------------------------------------------------


def assert_tensordict_eq(tensordict1: TensorDict, tensordict2: TensorDict) -> None:
    """Raise an `AssertionError` that names the first key which differs."""
    keys1, keys2 = (set(_keys(part)) for part in (tensordict1, tensordict2))
    if keys1 != keys2:
        raise AssertionError(f"keys that only one of them has: {sorted(keys1 ^ keys2)}")
    for key in sorted(keys1):
        first, second = get(tensordict1, key), get(tensordict2, key)
        if not same_value(first, second):
            raise AssertionError(f"{key}: {first!r} differs from {second!r}")


def contiguous(data: TensorDict) -> TensorDict:
    """The same batch, each tensor in one piece of memory."""
    made = {key: _present(data, key) for key in _keys(data)}
    return _rebuilt(data, {k: v.contiguous() if isinstance(v, Tensor) else v for k, v in made.items()})


def maybe_fix_3d_position_ids(data: TensorDict) -> None:
    """Let nested `position_ids` of three dimensions [B, axes, tokens] be ragged in tokens, in place.

    A trip through pickle leaves them ragged in the axes, and then nothing can be computed with them.
    """
    position_ids = data.get("position_ids", None)
    if isinstance(position_ids, Tensor) and position_ids.is_nested and position_ids.dim() == 3:
        position_ids._ragged_idx = 2  # type: ignore[attr-defined]


# ---- pieces ---------------------------------------------------------------------------------------------------------


def _rows(data: TensorDict) -> int | None:
    return data.batch_size[0] if len(data.batch_size) else None


def _keys(data: TensorDict) -> list[str]:
    # Iterating a TensorDict walks its rows, and its keys may be paths into it; these batches have none.
    keys: Any = data.keys()
    return list(keys)


def _put(data: TensorDict, key: str, value: Any) -> None:
    data.set(key, value)


def _length(value: Tensor | list[Any]) -> int:
    return len(value) if isinstance(value, list) else value.size(0)


def _present(data: TensorDict, key: str) -> Any:
    value = data.get(key, _ABSENT)
    if value is _ABSENT:
        raise DataError("no such key", where=key, expected=f"one of {sorted(_keys(data))}")
    return value


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, NonTensorStack) else unwrap_non_tensor_data(value)


def _stack(key: str, values: list[Any]) -> NonTensorStack | NonTensorData:
    if any(isinstance(value, Tensor) for value in values):
        raise DataError("a list holds objects", where=key, got="tensors in a list", remedy="stack or nest them")
    # A stack of nothing cannot be made.
    return NonTensorStack(*[NonTensorData(value) for value in values]) if values else NonTensorData([])


def _column(values: list[Any]) -> Any:
    if not all(isinstance(value, Tensor) for value in values):
        return values
    return nest(values) if values[0].dim() else torch.stack(values)


def _rebuilt(like: TensorDict, values: dict[str, Any], rows: int | None = None) -> TensorDict:
    size = like.batch_size if rows is None else [rows]
    made = TensorDict({}, batch_size=size)
    for key, value in values.items():
        fact = isinstance(value, NonTensorData) and not isinstance(value, NonTensorStack)
        _put(made, key, NonTensorData(value.data, batch_size=size) if fact else value)
    return made


def _same_keys(data: Sequence[TensorDict]) -> None:
    for index, part in enumerate(data):
        if set(part.keys()) != set(data[0].keys()):
            odd = sorted(set(part.keys()) ^ set(data[0].keys()))
            raise DataError("batches with different keys cannot be joined", where=f"batch {index}", got=odd)


def _concat(key: str, values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, NonTensorStack):
        return _stack(key, [item for value in values for item in value.tolist()])
    return join(values, key) if isinstance(first, Tensor) else first


def _take(value: Any, places: list[int]) -> Any:
    if isinstance(value, NonTensorStack):
        items = value.tolist()
        return _stack("", [items[place] for place in places])
    return take(value, np.array(places, dtype=np.int64)) if isinstance(value, Tensor) else value
