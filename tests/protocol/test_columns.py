# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Columns: ragged tensors stay ragged in the dimension they are ragged in."""

import pytest
import torch

from verl.errors import DataError
from verl.protocol import DataProto
from verl.protocol.columns import nest, ragged_dim_of, ragged_lengths, rows_of


def jagged(lengths: list[int], ragged_dim: int = 1) -> torch.Tensor:
    """Rows (t,) for ragged_dim 1, (t, 2) with three dimensions, or (2, t) for ragged_dim 2."""
    if ragged_dim == 2:
        return nest([torch.arange(2 * length).reshape(2, length) for length in lengths], 2)
    return nest([torch.arange(length) for length in lengths])


def test_equal_lengths_stay_jagged_through_index_slice_concat_and_repeat() -> None:
    data = DataProto.from_dict({"x": jagged([3, 3])}, {"uid": ["a", "b"]})
    for other in (data[[1, 0]], data[0:2], DataProto.concat([data, data]), data.repeat(2), *data.chunk(2)):
        assert other.batch["x"].is_nested
        assert other.batch["x"].layout == torch.jagged
        assert set(ragged_lengths(other.batch["x"]).tolist()) == {3}


def test_rows_keep_their_values_in_the_chosen_order() -> None:
    data = DataProto.from_dict({"x": jagged([3, 5, 4])})
    assert ragged_lengths(data.batch["x"]).max() == 5
    assert [row.tolist() for row in rows_of(data[[2, 0]].batch["x"])] == [[0, 1, 2, 3], [0, 1, 2]]
    joined = DataProto.concat([data[0:1], data[1:3]])
    assert ragged_lengths(joined.batch["x"]).tolist() == [3, 5, 4]


def test_another_ragged_dimension_is_kept() -> None:
    middle = DataProto.from_dict({"x": nest([torch.ones(2, 7), torch.ones(5, 7)])})
    assert middle[[1]].batch["x"].shape[2] == 7
    assert ragged_lengths(middle[[1, 0]].batch["x"]).tolist() == [5, 2]
    last = DataProto.from_dict({"x": jagged([3, 5], ragged_dim=2)})
    for other in (last[[1, 0]], DataProto.concat([last[1:2], last[0:1]])):
        assert ragged_dim_of(other.batch["x"]) == 2
        assert ragged_lengths(other.batch["x"]).tolist() == [5, 3]
        assert rows_of(other.batch["x"])[1].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_ragged_and_a_dense_part_do_not_mix() -> None:
    parts = [DataProto.from_dict({"x": jagged([3])}), DataProto.from_dict({"x": torch.zeros(1, 3)})]
    with pytest.raises(DataError, match="x: some parts are ragged"):
        DataProto.concat(parts)
