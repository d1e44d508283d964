# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reshaping: every row is kept, in the promised order, for any size."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.errors import DataError
from verl.protocol import DataProto, fold_batch_dim, pad_dataproto_to_divisor, unfold_batch_dim, unpad_dataproto

SIZES = st.integers(min_value=1, max_value=12)


def make(rows: int) -> DataProto:
    return DataProto.from_dict(
        {"x": torch.arange(rows * 2).reshape(rows, 2)},
        {"uid": list(range(rows)), "deep": [[row] for row in range(rows)]},
    )


def uids(data: DataProto) -> list[int]:
    return data.non_tensor_batch["uid"].tolist()


def consistent(data: DataProto) -> bool:
    return [row // 2 for row in data.batch["x"][:, 0].tolist()] == uids(data)


@settings(max_examples=50, deadline=None)
@given(rows=SIZES, chunks=SIZES)
def test_chunks_differ_by_at_most_one_row_and_join_to_the_whole(rows: int, chunks: int) -> None:
    data = make(rows)
    if rows < chunks:
        with pytest.raises(DataError, match=f"{rows} rows for {chunks} parts"):
            data.chunk(chunks)
        return
    parts = data.chunk(chunks)
    sizes = [len(part) for part in parts]
    assert len(parts) == chunks
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    assert uids(DataProto.concat(parts)) == list(range(rows))
    assert all(consistent(part) for part in parts)


def test_nine_rows_over_four_parts_are_three_two_two_two() -> None:
    assert [len(part) for part in make(9).chunk(4)] == [3, 2, 2, 2]


@settings(max_examples=50, deadline=None)
@given(rows=st.integers(0, 12), size=SIZES)
def test_a_split_has_full_parts_and_one_rest(rows: int, size: int) -> None:
    parts = make(rows).split(size)
    assert [len(part) for part in parts[:-1]] == [size] * max(0, len(parts) - 1)
    assert sum(len(part) for part in parts) == rows
    assert [uid for part in parts for uid in uids(part)] == list(range(rows))


def test_a_split_into_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="at least one row"):
        make(3).split(0)


@settings(max_examples=50, deadline=None)
@given(rows=SIZES, divisor=SIZES)
def test_padding_to_a_divisor_adds_rows_from_the_front_and_comes_off_again(rows: int, divisor: int) -> None:
    data = make(rows)
    padded, added = pad_dataproto_to_divisor(data, divisor)
    assert len(padded) % divisor == 0
    assert 0 <= added < divisor
    assert uids(padded) == [row % rows for row in range(rows + added)]
    assert consistent(padded)
    assert uids(unpad_dataproto(padded, added)) == list(range(rows))


def test_an_empty_batch_needs_no_padding() -> None:
    assert pad_dataproto_to_divisor(make(0), 4)[1] == 0


def test_repeat_interleaved_or_over_and_over() -> None:
    assert uids(make(3).repeat(2, interleave=True)) == [0, 0, 1, 1, 2, 2]
    assert uids(make(3).repeat(2, interleave=False)) == [0, 1, 2, 0, 1, 2]
    assert consistent(make(3).repeat(4))
    columns_only = DataProto.from_dict(non_tensors={"uid": [7, 8]})
    assert uids(columns_only.repeat(2)) == [7, 7, 8, 8]


@pytest.mark.parametrize("as_type", [list, np.array, torch.tensor])
def test_each_row_is_repeated_its_own_number_of_times(as_type: type) -> None:
    repeated = make(3).sample_level_repeat(as_type([2, 0, 3]))
    assert uids(repeated) == [0, 0, 2, 2, 2]
    assert consistent(repeated)


def test_a_count_is_needed_for_every_row() -> None:
    with pytest.raises(DataError, match="3 counts"):
        make(3).sample_level_repeat([1, 2])


def test_reorder_permutes_in_place_and_the_inverse_restores() -> None:
    data = make(5)
    order = torch.tensor([4, 2, 0, 1, 3])
    data.reorder(order)
    assert uids(data) == [4, 2, 0, 1, 3]
    assert consistent(data)
    data.reorder(torch.argsort(order))
    assert uids(data) == [0, 1, 2, 3, 4]


def test_folding_keeps_neighbours_together_and_unfolding_restores() -> None:
    data = make(3).repeat(2)
    folded = fold_batch_dim(data, 3)
    assert folded.batch["x"].shape == (3, 2, 2)
    assert len(folded) == 3
    assert (folded.non_tensor_batch["uid"] == np.array([[0, 0], [1, 1], [2, 2]], dtype=object)).all()
    again = unfold_batch_dim(folded)
    assert uids(again) == uids(data)
    assert torch.equal(again.batch["x"], data.batch["x"])
    with pytest.raises(DataError, match="6 rows into 4"):
        fold_batch_dim(data, 4)


def test_folded_rows_are_shuffled_together() -> None:
    folded = fold_batch_dim(make(3).repeat(2), 3)
    folded.reorder([2, 0, 1])
    assert uids(unfold_batch_dim(folded)) == [2, 2, 0, 0, 1, 1]


def test_column_chunks_become_rows_and_other_columns_are_repeated() -> None:
    data = DataProto.from_dict(
        {"x": torch.arange(12).reshape(2, 6), "y": torch.arange(2)},
        {"uid": ["a", "b"], "steps": np.arange(12).reshape(2, 6)},
    )
    pieces = data.unfold_column_chunks(3, split_keys=["x", "steps"])
    assert pieces.batch["x"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert pieces.non_tensor_batch["steps"].tolist() == pieces.batch["x"].tolist()
    assert pieces.batch["y"].tolist() == [0, 0, 0, 1, 1, 1]
    assert pieces.non_tensor_batch["uid"].tolist() == ["a"] * 3 + ["b"] * 3
    with pytest.raises(DataError, match="x: the second dimension"):
        data.unfold_column_chunks(4, split_keys=["x"])


def test_concat_refuses_an_empty_list_and_differing_columns_by_name() -> None:
    with pytest.raises(DataError, match="nothing to concatenate"):
        DataProto.concat([])
    with pytest.raises(DataError, match=r"different tensors.*'y'"):
        DataProto.concat([DataProto.from_dict({"x": torch.zeros(1)}), DataProto.from_dict({"y": torch.zeros(1)})])
    with pytest.raises(DataError, match=r"different columns.*'uid'"):
        DataProto.concat([make(1), make(1).select(non_tensor_batch_keys=["deep"])])
    with pytest.raises(DataError, match="some have none"):
        DataProto.concat([make(1), make(1).select(batch_keys=None)[[0]].pop(non_tensor_batch_keys=["uid", "deep"])])
    with pytest.raises(DataError, match=r"x: the parts have shapes.*\(1, 2\)"):
        DataProto.concat([DataProto.from_dict({"x": torch.zeros(1, 2)}), DataProto.from_dict({"x": torch.zeros(1, 3)})])


def test_concat_of_batches_without_tensors() -> None:
    parts = [DataProto.from_dict(non_tensors={"uid": [1]}), DataProto.from_dict(non_tensors={"uid": [2, 3]})]
    joined = DataProto.concat(parts)
    assert joined.batch is None
    assert uids(joined) == [1, 2, 3]
