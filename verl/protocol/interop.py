# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""DataProto's parts as one TensorDict, and back: columns as stacked non-tensors, meta_info as single ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl.protocol.columns import object_column
from verl.protocol.td import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict


def to_tensordict(
    batch: TensorDict | None, columns: Mapping[str, np.ndarray], meta_info: Mapping[str, Any], rows: int
) -> TensorDict:
    """One TensorDict of `rows` rows; the tensors are shared with `batch`."""
    joined = TensorDict(dict(batch.items()) if batch is not None else {}, batch_size=[rows])
    for key, column in columns.items():
        # Wrapped one by one: tensordict would turn a list of equal-length lists into a tensor.
        stacked: Any = NonTensorStack(*[NonTensorData(value) for value in column]) if rows else NonTensorData([])
        joined.set(key, stacked)
    for key, value in meta_info.items():
        fact: Any = NonTensorData(value, batch_size=[rows])
        joined.set(key, fact)
    return joined


def split_tensordict(joined: TensorDict) -> tuple[dict[str, torch.Tensor], dict[str, np.ndarray], dict[str, Any]]:
    """Tensors, columns and meta_info of a TensorDict."""
    tensors: dict[str, torch.Tensor] = {}
    columns: dict[str, np.ndarray] = {}
    facts: dict[str, Any] = {}
    keys: list[Any] = list(joined.keys())
    for key in keys:
        value = joined.get(key)
        if isinstance(value, torch.Tensor):
            tensors[key] = value
        elif isinstance(value, NonTensorData):
            facts[key] = value.data
        elif isinstance(value, LazyStackedTensorDict):
            columns[key] = _column([row.data for row in value.tensordicts])
        else:
            facts[key] = value
    return tensors, columns, facts


def _column(values: list[Any]) -> np.ndarray:
    """NumPy scalars of one dtype become a typed column again, everything else an object column."""
    if values and isinstance(values[0], np.generic):
        dtype = np.result_type(*{value.dtype for value in values if isinstance(value, np.generic)})
        if all(isinstance(value, np.generic) and value.dtype.kind == dtype.kind for value in values):
            return np.array(values, dtype=dtype)
    return object_column(values)
