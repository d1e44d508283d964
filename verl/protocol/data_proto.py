# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`DataProto`: the one batch that travels, from the agent loop to the engine.

`batch` holds tensors that share their first dimension, `non_tensor_batch` NumPy columns of the same length,
`meta_info` facts about the batch as a whole. Object columns are 1-D: one Python value per row.
"""

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import DataLoader

from verl.errors import DataError
from verl.protocol import fields, interop, reshape, wire
from verl.protocol.auto_padding import DataProtoConfig
from verl.protocol.columns import as_column, cut, num_rows, object_column, take
from verl.protocol.merge import union_meta_info, union_numpy_dict, union_tensor_dict
from verl.protocol.td import TensorDict

logger = logging.getLogger(__name__)

Keys = Sequence[str] | str | None


@dataclass
class DataProtoItem:
    """One row: tensors without the batch dimension, the row's Python values, the batch's meta_info."""

    batch: TensorDict | None = None
    non_tensor_batch: dict[str, Any] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)


@dataclass
class DataProto:
    """A batch of B rows; see `verl.protocol.fields` for the names that have a meaning."""

    batch: TensorDict | None = None
    non_tensor_batch: dict[str, np.ndarray] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.check_consistency()

    @property
    def tensors(self) -> TensorDict:
        """`batch`, for code that needs one: a `DataError` where there are only Python values."""
        if self.batch is None:
            raise DataError("the batch has no tensors", got=f"Python values {sorted(self.non_tensor_batch)}")
        return self.batch

    # ---- building -------------------------------------------------------------------------------------------------

    @classmethod
    def from_single_dict(
        cls,
        data: Mapping[str, torch.Tensor | np.ndarray],
        meta_info: dict[str, Any] | None = None,
        auto_padding: bool = False,
    ) -> Self:
        """Tensors go to `batch`, arrays and lists to `non_tensor_batch`."""
        tensors = {key: value for key, value in data.items() if isinstance(value, torch.Tensor)}
        others = {key: value for key, value in data.items() if key not in tensors}
        return cls.from_dict(tensors, others, meta_info, auto_padding=auto_padding)

    @classmethod
    def from_dict(
        cls,
        tensors: Mapping[str, torch.Tensor] | None = None,
        non_tensors: Mapping[str, Any] | None = None,
        meta_info: dict[str, Any] | None = None,
        num_batch_dims: int = 1,
        auto_padding: bool = False,
    ) -> Self:
        """Build from dictionaries.

        All tensors must agree in their first `num_batch_dims` dimensions; lists become object columns.
        """
        if num_batch_dims > 1 and non_tensors:
            raise DataError("columns that are not tensors allow one batch dimension only", got=num_batch_dims)
        meta_info = dict(meta_info or {})
        if auto_padding:
            meta_info[DataProtoConfig.auto_padding_key] = True
        columns = {key: as_column(value) for key, value in (non_tensors or {}).items()}
        return cls(_tensor_dict(tensors or {}, num_batch_dims), columns, meta_info)

    @classmethod
    def from_tensordict(
        cls, tensor_dict: TensorDict | None = None, meta_info: dict[str, Any] | None = None, num_batch_dims: int = 1
    ) -> Self:
        """The inverse of `to_tensordict`: stacked non-tensors become columns, single ones meta_info."""
        if tensor_dict is None:
            raise DataError("from_tensordict needs a TensorDict")
        tensors, columns, facts = interop.split_tensordict(tensor_dict)
        batch = _tensor_dict(tensors, num_batch_dims)
        return cls(batch, columns, union_meta_info(facts, meta_info or {}))

    def to_tensordict(self) -> TensorDict:
        """One TensorDict with columns as stacked non-tensors and meta_info as single non-tensors."""
        return interop.to_tensordict(self.batch, self.non_tensor_batch, self.meta_info, len(self))

    # ---- rows -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if self.batch is not None and self.batch.batch_dims:
            return self.batch.batch_size[0]
        for column in self.non_tensor_batch.values():
            return len(column)
        return 0

    def __getitem__(self, item: Any) -> "DataProto | DataProtoItem":
        if isinstance(item, slice):
            return self.slice(item.start, item.stop, item.step)
        if isinstance(item, int | np.integer):
            return self._item(int(item))
        if isinstance(item, list | tuple | range | np.ndarray | torch.Tensor):
            return self.select_idxs(item)
        raise DataError("rows are chosen by int, slice, list, array or tensor", got=type(item).__name__)

    def _item(self, row: int) -> DataProtoItem:
        if not -len(self) <= row < len(self):
            # IndexError, not DataError: it ends `for item in data`.
            raise IndexError(f"row {row} of a batch of {len(self)}")
        columns = {key: column[row] for key, column in self.non_tensor_batch.items()}
        return DataProtoItem(None if self.batch is None else self.batch[row], columns, self.meta_info)

    def select_idxs(self, idxs: Sequence[int] | np.ndarray | torch.Tensor) -> Self:
        """A copy of the given rows; a boolean mask of B entries works as well."""
        idxs = idxs.cpu().numpy() if isinstance(idxs, torch.Tensor) else np.asarray(idxs)
        if idxs.dtype == bool:
            if len(idxs) != len(self):
                raise DataError("a row mask has one entry per row", got=len(idxs), expected=len(self))
            idxs = idxs.nonzero()[0]
        rows = idxs.astype(np.int64)
        return self.map_columns(lambda column: take(column, rows), len(rows))

    def slice(self, start: int | None = None, end: int | None = None, step: int | None = None) -> Self:
        """Rows start, start + step, …; dense tensors are views of this batch."""
        span = slice(start, end, step)
        return self.map_columns(lambda column: cut(column, span), len(range(*span.indices(len(self)))))

    def map_columns(self, function: Callable[[Any], Any], rows: int) -> Self:
        """A batch of `rows` rows in which each column is `function` of this batch's; meta_info is shared."""
        batch = None
        if self.batch is not None:
            tensors = {key: function(tensor) for key, tensor in self.batch.items()}
            batch = TensorDict(tensors, batch_size=[rows, *self.batch.batch_size[1:]], device=self.batch.device)
        columns = {key: function(column) for key, column in self.non_tensor_batch.items()}
        return replace(self, batch=batch, non_tensor_batch=columns)

    def reorder(self, indices: Sequence[int] | torch.Tensor) -> None:
        """Permute the rows in place."""
        ordered = self.select_idxs(indices)
        self.batch, self.non_tensor_batch = ordered.batch, ordered.non_tensor_batch

    # ---- columns --------------------------------------------------------------------------------------------------

    def select(
        self,
        batch_keys: Keys = None,
        non_tensor_batch_keys: Keys = None,
        meta_info_keys: Keys = None,
        deepcopy: bool = False,
    ) -> Self:
        """The named columns; None means all of a kind, an empty list none."""
        batch = self.batch
        if batch is not None and batch_keys is not None:
            batch = batch.select(*_checked(batch_keys, batch.keys(), "tensor"))
        columns = _pick(self.non_tensor_batch, non_tensor_batch_keys, "column")
        meta_info = _pick(self.meta_info, meta_info_keys, "meta_info entry")
        if deepcopy:
            batch = None if batch is None else batch.clone()
            columns, meta_info = copy.deepcopy(columns), copy.deepcopy(meta_info)
        return replace(self, batch=batch, non_tensor_batch=columns, meta_info=meta_info)

    def pop(
        self, batch_keys: Keys = None, non_tensor_batch_keys: Keys = None, meta_info_keys: Keys = None
    ) -> "DataProto":
        """Remove the named columns and return them as a batch; None means none of a kind."""
        known = () if self.batch is None else self.batch.keys()
        tensor_keys = _checked(batch_keys or (), known, "tensor")
        column_keys = _checked(non_tensor_batch_keys or (), self.non_tensor_batch, "column")
        meta_keys = _checked(meta_info_keys or (), self.meta_info, "meta_info entry")
        # Without tensors there are no keys either.
        batch: Any = self.batch
        tensors: dict[str, Any] = {key: batch.pop(key) for key in tensor_keys}
        return type(self)(
            _tensor_dict(tensors, 1) if tensor_keys else None,
            {key: self.non_tensor_batch.pop(key) for key in column_keys},
            {key: self.meta_info.pop(key) for key in meta_keys},
        )

    def rename(self, old_keys: Keys = None, new_keys: Keys = None) -> Self:
        """Rename tensors or columns in place; both lists have the same length."""
        old, new = _as_list(old_keys), _as_list(new_keys)
        if len(old) != len(new):
            raise DataError("rename needs as many new keys as old ones", got=f"{old} and {new}")
        tensor_keys = set() if self.batch is None else set(self.batch.keys())
        for old_key, new_key in zip(old, new, strict=True):
            if self.batch is not None and old_key in tensor_keys:
                self.batch.rename_key_(old_key, new_key)
            else:
                _checked([old_key], self.non_tensor_batch, "tensor or column")
                self.non_tensor_batch[new_key] = self.non_tensor_batch.pop(old_key)
        return self

    def union(self, other: "DataProto") -> Self:
        """Add the columns of `other` in place; a key that both have must hold equal values."""
        if len(self) != len(other) and self._has_rows() and other._has_rows():
            raise DataError("two batches of different size cannot be united", got=len(other), expected=len(self))
        if self.batch is None:
            self.batch = other.batch
        elif other.batch is not None:
            self.batch = union_tensor_dict(self.batch, other.batch)
        self.non_tensor_batch = union_numpy_dict(self.non_tensor_batch, other.non_tensor_batch)
        self.meta_info = union_meta_info(self.meta_info, other.meta_info)
        return self

    def _has_rows(self) -> bool:
        return bool(self.non_tensor_batch) or (self.batch is not None and not self.batch.is_empty())

    # ---- shape ----------------------------------------------------------------------------------------------------

    def is_padding_enabled(self) -> bool:
        """Whether this batch may be padded so that it divides over the ranks of a worker group."""
        return bool(self.meta_info.get(DataProtoConfig.auto_padding_key, False) or DataProtoConfig.auto_padding)

    def padding(self, padding_size: int, padding_candidate: str = "") -> None:
        """Append `padding_size` copies of the first row (or of the last, with "last"), in place."""
        padded = reshape.pad_with_row(self, padding_size, padding_candidate or "first")
        self.batch, self.non_tensor_batch = padded.batch, padded.non_tensor_batch

    def chunk(self, chunks: int) -> list[Self]:
        """`chunks` parts in row order whose sizes differ by at most one, the larger first."""
        return reshape.chunk(self, chunks)

    def split(self, split_size: int) -> list[Self]:
        """Parts of `split_size` rows; the last may be smaller."""
        return reshape.split(self, split_size)

    @staticmethod
    def concat(data: Sequence["DataProto"]) -> "DataProto":
        """The rows of all parts; see `merge.concat_meta_info` for what becomes of meta_info."""
        return reshape.concat(data)

    def repeat(self, repeat_times: int = 2, interleave: bool = True) -> Self:
        """Each row `repeat_times` times: next to each other, or the whole batch over and over."""
        return reshape.repeat(self, repeat_times, interleave)

    def sample_level_repeat(self, repeat_times: Sequence[int] | np.ndarray | torch.Tensor) -> Self:
        """Row i `repeat_times[i]` times."""
        return reshape.sample_level_repeat(self, repeat_times)

    def unfold_column_chunks(self, n_split: int, split_keys: Sequence[str] | None = None) -> Self:
        """Cut the second dimension of `split_keys` into `n_split` pieces, each a row of its own."""
        return reshape.unfold_column_chunks(self, n_split, split_keys)

    def make_iterator(
        self,
        mini_batch_size: int,
        epochs: int,
        seed: int | None = None,
        dataloader_kwargs: dict[str, Any] | None = None,
    ) -> Iterator[Self]:
        """Mini-batches of `mini_batch_size` rows for `epochs` passes; `dataloader_kwargs` go to torch's DataLoader."""
        if mini_batch_size < 1 or len(self) % mini_batch_size:
            raise DataError("the batch must divide into mini-batches", got=f"{len(self)} rows by {mini_batch_size}")
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        # Any sequence does as a data set.
        rows: Any = range(len(self))
        loader: DataLoader[Any] = DataLoader(
            rows,
            batch_size=mini_batch_size,
            collate_fn=self.select_idxs,
            generator=generator,
            **(dataloader_kwargs or {}),
        )
        return (mini_batch for _ in range(epochs) for mini_batch in loader)

    # ---- place and storage ----------------------------------------------------------------------------------------

    def to(self, device: torch.device | str | int) -> Self:
        """Move the tensors to a device, in place."""
        if self.batch is not None:
            self.batch = self.batch.to(device)
        return self

    def __getstate__(self) -> tuple[Any, ...]:
        return wire.dump_state(self.batch), self.non_tensor_batch, self.meta_info

    def __setstate__(self, data: tuple[Any, ...]) -> None:
        state, self.non_tensor_batch, self.meta_info = data
        self.batch = wire.load_state(state)

    def save_to_disk(self, filepath: str | Path, allow_pickle: bool = False) -> None:
        """Write a file that holds data only, never code; other Python objects need `allow_pickle`."""
        wire.save(filepath, self.batch, self.non_tensor_batch, self.meta_info, allow_pickle)

    @staticmethod
    def load_from_disk(filepath: str | Path, allow_pickle: bool = False) -> "DataProto":
        """Read what `save_to_disk` wrote; pickled objects are refused unless `allow_pickle`."""
        return DataProto(*wire.load(filepath, allow_pickle))

    # ---- looking at it --------------------------------------------------------------------------------------------

    def check_consistency(self) -> None:
        """Every column is an array or tensor of the batch's length, or a DataError names it."""
        rows = None
        if self.batch is not None:
            if not self.batch.batch_dims:
                raise DataError("`batch` needs a batch dimension", where="DataProto.batch")
            rows = self.batch.batch_size[0] if not self.batch.is_empty() or self.batch.batch_size[0] else None
        for key, column in self.non_tensor_batch.items():
            if not isinstance(column, np.ndarray) or column.ndim == 0:
                raise DataError(
                    "a non-tensor column must be a NumPy array with one entry per row",
                    where=key,
                    got=type(column).__name__,
                    remedy="DataProto.from_dict converts lists",
                )
            rows = len(column) if rows is None else rows
            if len(column) != rows:
                raise DataError("the column's length is not the batch size", where=key, got=len(column), expected=rows)

    def check(self) -> None:
        """Compare the columns that have a meaning with the glossary: shape letters and kind of dtype."""
        self.check_consistency()
        tensors: dict[str, Any] = dict(self.batch.items()) if self.batch is not None else {}
        fields.check(tensors, set(self.non_tensor_batch))

    def get_data_info(self) -> str:
        """One line a column: name, shape, dtype, device."""
        lines = [f"rows: {len(self)}"]
        tensor: Any
        for key, tensor in sorted(self.batch.items()) if self.batch is not None else ():
            shape = f"jagged {num_rows(tensor)}" if tensor.is_nested else tuple(tensor.shape)
            lines.append(f"batch[{key}]: {shape} {tensor.dtype} {tensor.device}")
        for key, column in sorted(self.non_tensor_batch.items()):
            lines.append(f"non_tensor_batch[{key}]: {column.shape} {column.dtype}")
        lines += [f"meta_info[{key}]: {type(value).__name__}" for key, value in sorted(self.meta_info.items())]
        return "\n".join(lines)

    def print_size(self, prefix: str = "") -> None:
        """Log the bytes that the tensors and the columns hold."""
        tensors: list[Any] = list(self.batch.values()) if self.batch is not None else []
        tensor_bytes = sum(wire.tensor_bytes(tensor) for tensor in tensors)
        column_bytes = sum(column.nbytes for column in self.non_tensor_batch.values())
        logger.info("%s tensors %.3f GB, columns %.3f GB", prefix, tensor_bytes / 2**30, column_bytes / 2**30)


def _tensor_dict(tensors: Mapping[str, torch.Tensor], num_batch_dims: int) -> TensorDict | None:
    """A TensorDict whose batch size is what all tensors share in their first dimensions; None without tensors."""
    if not tensors:
        return None
    if num_batch_dims < 1:
        raise DataError("a batch has at least one batch dimension", got=num_batch_dims)
    batch_size: tuple[int, ...] | None = None
    for key, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor) or tensor.dim() < num_batch_dims:
            raise DataError("not a tensor with a batch dimension", where=key, got=type(tensor).__name__)
        shape = tuple(tensor.size(dim) for dim in range(num_batch_dims))
        batch_size = batch_size or shape
        if shape != batch_size:
            raise DataError("tensors disagree on the batch size", where=key, got=shape, expected=batch_size)
    return TensorDict(dict(tensors), batch_size=batch_size)


def _as_list(keys: Keys) -> list[str]:
    return [keys] if isinstance(keys, str) else list(keys or ())


def _checked(keys: Keys, known: Any, kind: str) -> list[str]:
    wanted = _as_list(keys)
    missing = [key for key in wanted if key not in known]
    if missing:
        raise DataError(f"the batch has no such {kind}", got=missing, expected=f"one of {sorted(map(str, known))}")
    return wanted


def _pick(mapping: dict[str, Any], keys: Keys, kind: str) -> dict[str, Any]:
    if keys is None:
        return dict(mapping)
    return {key: mapping[key] for key in _checked(keys, mapping, kind)}


def collate_fn(x: Sequence[DataProtoItem]) -> DataProto:
    """Rows to a batch: tensors stacked, everything else in 1-D object columns; meta_info is not kept."""
    batch, lists = reshape.stack_items(x)
    return DataProto(batch, {key: object_column(values) for key, values in lists.items()})
