# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""To a TensorDict and back."""

import numpy as np
import pytest
import torch

from verl.errors import DataError
from verl.protocol import DataProto

COLUMNS = {
    "turn_scores": [[], [0.5, 0.8]],
    "extra": [{"a": 1}, {}],
    "prompt": [[{"role": "user", "content": "x"}], [{"role": "user", "content": "y"}]],
    "nothing": [None, None],
    "perhaps": [None, "x"],
    "messages of one length": [[{"role": "user", "content": "x"}, {}], [{"role": "tool", "content": None}, {}]],
    "name": ["a", "b"],
}


@pytest.mark.parametrize("rows", [1, 2])
def test_python_values_survive(rows: int) -> None:
    columns = {key: values[:rows] for key, values in COLUMNS.items()}
    data = DataProto.from_dict({"x": torch.arange(rows)}, columns, {"t": 0.5, "names": ["a", "b"]})
    again = DataProto.from_tensordict(data.to_tensordict())
    assert {key: column.tolist() for key, column in again.non_tensor_batch.items()} == columns
    assert all(column.shape == (rows,) for column in again.non_tensor_batch.values())
    assert again.batch["x"].tolist() == list(range(rows))
    assert again.meta_info == {"t": 0.5, "names": ["a", "b"]}


def test_typed_columns_keep_their_dtype() -> None:
    data = DataProto.from_dict(non_tensors={"score": np.array([0.5, 1.5], dtype=np.float32), "n": np.array([1, 2])})
    again = DataProto.from_tensordict(data.to_tensordict())
    assert again.non_tensor_batch["score"].dtype == np.float32
    assert again.non_tensor_batch["n"].tolist() == [1, 2]


def test_rows_of_the_tensordict_are_rows_of_the_batch() -> None:
    data = DataProto.from_dict({"x": torch.arange(3)}, {"deep": [[1], [2, 3], []]}, {"t": 1})
    again = DataProto.from_tensordict(data.to_tensordict()[1:])
    assert again.non_tensor_batch["deep"].tolist() == [[2, 3], []]
    assert again.meta_info == {"t": 1}


def test_ragged_tensors_survive() -> None:
    rows = [torch.arange(3), torch.arange(3)]
    data = DataProto.from_dict({"x": torch.nested.as_nested_tensor(rows, layout=torch.jagged)})
    assert DataProto.from_tensordict(data.to_tensordict()).batch["x"].is_nested


def test_given_meta_info_is_added_and_conflicts_are_named() -> None:
    joined = DataProto.from_dict({"x": torch.zeros(1)}, meta_info={"t": 1}).to_tensordict()
    assert DataProto.from_tensordict(joined, {"u": 2}).meta_info == {"t": 1, "u": 2}
    with pytest.raises(DataError, match="t: both"):
        DataProto.from_tensordict(joined, {"t": 2})
    with pytest.raises(DataError, match="needs a TensorDict"):
        DataProto.from_tensordict(None)


def test_a_batch_without_rows_survives() -> None:
    data = DataProto.from_dict({"x": torch.zeros(0, 3)}, {"uid": []})
    again = DataProto.from_tensordict(data.to_tensordict())
    assert again.batch["x"].shape == (0, 3)
    assert len(again) == 0
