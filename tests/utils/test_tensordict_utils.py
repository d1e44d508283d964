# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Batches as bare TensorDicts: what goes in comes out, whatever its kind."""

from typing import Any

import pytest
import torch

from verl import DataProto
from verl.errors import DataError
from verl.protocol import BatchData
from verl.protocol.columns import nest, rows_of
from verl.protocol.td import TensorDict
from verl.utils import tensordict_utils as tu


def ragged(*lengths: int) -> torch.Tensor:
    """Rows [0, 1, …], [10, 11, …], …"""
    return nest([torch.arange(length) + 10 * row for row, length in enumerate(lengths)])


def batch() -> TensorDict:
    columns = {"dense": torch.arange(8).reshape(4, 2), "ragged": ragged(1, 3, 2, 3), "uid": ["a", "b", "c", "d"]}
    return tu.get_tensordict(columns, {"temperature": 0.5, "names": ["x", "y"]})


def shown(data: TensorDict) -> dict[str, Any]:
    """A batch as plain Python."""
    found = {key: tu.get(data, key) for key in data.keys()}  # noqa: SIM118
    return {key: as_list(value) for key, value in found.items()}


def as_list(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return [row.tolist() for row in rows_of(value)] if value.is_nested else value.tolist()


WHOLE = {
    "dense": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "ragged": [[0], [10, 11, 12], [20, 21], [30, 31, 32]],
    "uid": ["a", "b", "c", "d"],
    "temperature": 0.5,
    "names": ["x", "y"],
}


def rows(*places: int) -> dict[str, Any]:
    facts = ("temperature", "names")
    return {key: value if key in facts else [value[place] for place in places] for key, value in WHOLE.items()}


def test_a_batch_gives_back_what_it_was_made_of() -> None:
    data = batch()
    assert data.batch_size == torch.Size([4])
    assert shown(data) == WHOLE


def test_a_missing_key_is_the_default() -> None:
    data = batch()
    assert tu.get(data, "nothing") is None
    assert tu.get(data, "nothing", 3) == 3
    assert tu.get_non_tensor_data(data, "nothing", 3) == 3
    assert tu.get_non_tensor_data(data, "temperature", 3) == 0.5
    assert tu.pop(data, "nothing", 3) == 3


def test_facts_and_objects_are_set_by_their_kind() -> None:
    data = batch()
    tu.assign_non_tensor(data, step=7, tags=[["p"], ["q", "r"], [], ["s"]], config={"a": [1]})
    tu.assign_non_tensor_data(data, "epoch", None)
    tu.assign_non_tensor_stack(data, "score", [1, 2.0, None, "four"])
    assert tu.get(data, "step") == tu.unwrap_non_tensor_data(data.get("step")) == 7
    assert tu.get(data, "tags") == [["p"], ["q", "r"], [], ["s"]]
    assert tu.get(data, "config") == {"a": [1]}
    assert tu.get(data, "epoch", 3) is None
    assert tu.get(data, "score") == [1, 2.0, None, "four"]
    assert tu.get(tu.index_select_tensor_dict(data, [1, 1]), "tags") == [["q", "r"], ["q", "r"]]


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="one length"):
        tu.get_tensordict({"a": torch.zeros(2), "b": ["x"]})
    with pytest.raises(DataError, match="stack or nest"):
        tu.get_tensordict({"a": [torch.zeros(2)]})
    with pytest.raises(DataError, match="3 objects"):
        tu.assign_non_tensor_stack(batch(), "a", [1, 2, 3])
    with pytest.raises(DataError, match="expected list"):
        tu.assign_non_tensor_stack(batch(), "a", "abcd")


def test_what_is_popped_is_gone() -> None:
    data = batch()
    assert tu.pop(data, "uid") == WHOLE["uid"]
    assert tu.pop(data, "temperature") == 0.5
    taken = tu.pop_keys(data, ["ragged", "names"])
    assert shown(taken) == {key: WHOLE[key] for key in ("ragged", "names")}
    assert shown(data) == {"dense": WHOLE["dense"]}
    with pytest.raises(DataError, match="ragged: no such key"):
        tu.pop_keys(data, ["ragged"])
    assert shown(tu.get_keys(data, ["dense"])) == shown(data) == {"dense": WHOLE["dense"]}


def test_chosen_rows_keep_their_kind_and_facts_stay() -> None:
    assert shown(tu.index_select_tensor_dict(batch(), [3, 0])) == rows(3, 0)
    assert shown(tu.index_select_tensor_dict(batch(), torch.tensor([2]))) == rows(2)
    mask = torch.tensor([False, True, True, False])
    assert shown(tu.index_select_tensor_dict(batch(), mask)) == rows(1, 2)
    facts = tu.get_keys(batch(), ["dense", "uid", "temperature"])
    assert shown(tu.index_select_tensor_dict(facts, [])) == {"dense": [], "uid": [], "temperature": 0.5}


def test_chunks_joined_are_the_batch() -> None:
    parts = tu.chunk_tensordict(batch(), 2)
    assert [shown(part) for part in parts] == [rows(0, 1), rows(2, 3)]
    joined = tu.concat_tensordict(parts)
    assert joined.batch_size == torch.Size([4])
    tu.assert_tensordict_eq(joined, batch())
    with pytest.raises(DataError, match="4 rows by 3"):
        tu.chunk_tensordict(batch(), 3)


def test_batches_with_other_keys_cannot_be_joined() -> None:
    other = batch()
    tu.pop(other, "uid")
    with pytest.raises(DataError, match=r"batch 1: .*uid"):
        tu.concat_tensordict([batch(), other])
    with pytest.raises(DataError, match="at least one"):
        tu.concat_tensordict([])


def test_batches_without_rows_are_their_facts() -> None:
    facts = [tu.get_tensordict({}, {"a": value}) for value in (1, 2)]
    assert shown(tu.concat_tensordict(facts)) == shown(tu.concat_tensordict_with_none_bsz(facts)) == {"a": 1}
    with pytest.raises(DataError, match="without rows"):
        tu.concat_tensordict_with_none_bsz([batch()])


def test_nested_tensors_are_joined_row_by_row() -> None:
    joined = tu.concat_nested_tensors([ragged(1, 2), ragged(3)])
    assert as_list(joined) == [[0], [10, 11], [0, 1, 2]]
    with pytest.raises(DataError, match="tensor 1"):
        tu.concat_nested_tensors([ragged(1), torch.zeros(1, 2)])


def test_padding_repeats_rows_from_the_front() -> None:
    padded, added = tu.pad_to_divisor(batch(), 3)
    assert added == 2
    assert shown(padded) == rows(0, 1, 2, 3, 0, 1)
    tu.assert_tensordict_eq(tu.unpad(padded, added), batch())
    same, none = tu.pad_to_divisor(batch(), 2)
    assert none == 0 and len(same) == 4
    assert shown(tu.pad_to_divisor(batch(), 9)[0]) == rows(0, 1, 2, 3, 0, 1, 2, 3, 0)


def test_an_iterator_passes_over_every_row_in_each_epoch() -> None:
    parts = list(tu.make_iterator(batch(), 2, epochs=2))
    assert [shown(part) for part in parts] == [rows(0, 1), rows(2, 3)] * 2

    def order(seed: int) -> list[str]:
        shuffled = tu.make_iterator(batch(), 1, epochs=3, seed=seed, dataloader_kwargs={"shuffle": True})
        return [tu.get(part, "uid")[0] for part in shuffled]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)[:4]) == ["a", "b", "c", "d"]
    with pytest.raises(DataError, match="4 rows by 3"):
        tu.make_iterator(batch(), 3, 1)


def test_a_difference_is_named() -> None:
    for key, value in (("uid", ["a", "b", "c", "e"]), ("temperature", 0.6), ("dense", torch.zeros(4, 2).long())):
        other = batch()
        other[key] = value if isinstance(value, torch.Tensor) else other.get(key)
        if not isinstance(value, torch.Tensor):
            tu.assign_non_tensor(other, **{key: value})
        with pytest.raises(AssertionError, match=key):
            tu.assert_tensordict_eq(batch(), other)
    other = batch()
    other["ragged"] = ragged(1, 3, 3, 2)
    with pytest.raises(AssertionError, match="ragged"):
        tu.assert_tensordict_eq(batch(), other)
    tu.pop(other, "ragged")
    with pytest.raises(AssertionError, match=r"only one.*ragged"):
        tu.assert_tensordict_eq(batch(), other)


def test_a_contiguous_batch_has_the_same_values() -> None:
    data = tu.get_tensordict({"a": torch.arange(6).reshape(2, 3).t()}, {"b": 1})
    made = tu.contiguous(data)
    assert not data["a"].is_contiguous() and made["a"].is_contiguous()
    tu.assert_tensordict_eq(made, data)


def test_rows_become_columns() -> None:
    made = tu.list_of_dict_to_tensordict(
        [
            {"ids": torch.tensor([1, 2]), "reward": torch.tensor(0.5), "uid": "a"},
            {"ids": torch.tensor([3]), "reward": torch.tensor(1.0), "uid": "b"},
        ]
    )
    assert shown(made) == {"ids": [[1, 2], [3]], "reward": [0.5, 1.0], "uid": ["a", "b"]}
    # Rows that happen to be of one length are nested all the same.
    assert tu.list_of_dict_to_tensordict([{"ids": torch.ones(2)}, {"ids": torch.ones(2)}])["ids"].is_nested
    with pytest.raises(DataError, match="row 1"):
        tu.list_of_dict_to_tensordict([{"a": 1}, {"b": 1}])


def test_positions_of_three_axes_are_ragged_in_tokens() -> None:
    axes = [torch.arange(3 * length).reshape(3, length) for length in (2, 4)]
    data = tu.get_tensordict({"position_ids": nest(axes, ragged_dim=2)})
    wanted = as_list(data["position_ids"])
    data["position_ids"]._ragged_idx = 1
    tu.maybe_fix_3d_position_ids(data)
    assert as_list(data["position_ids"]) == wanted == [part.tolist() for part in axes]
    dense = batch()
    tu.maybe_fix_3d_position_ids(dense)
    tu.assert_tensordict_eq(dense, batch())
    swapped = tu.index_select_tensor_dict(data, [1, 0])
    assert as_list(swapped["position_ids"]) == [wanted[1], wanted[0]]


def test_tensors_of_two_batches_are_united() -> None:
    first, second = TensorDict({"a": torch.ones(2)}, [2]), TensorDict({"b": torch.zeros(2)}, [2])
    assert shown(tu.union_tensor_dict(first, second)) == {"a": [1.0, 1.0], "b": [0.0, 0.0]}


# ---- BatchData ------------------------------------------------------------------------------------------------------


def test_either_kind_of_batch_is_cut_and_joined() -> None:
    proto = DataProto.from_dict({"a": torch.arange(4)})
    parts = BatchData(proto).chunk(2)
    assert [part.batch["a"].tolist() for part in parts] == [[0, 1], [2, 3]]
    assert BatchData(parts).concat().batch["a"].tolist() == [0, 1, 2, 3]
    assert [shown(part) for part in BatchData(batch()).chunk(2)] == [rows(0, 1), rows(2, 3)]
    tu.assert_tensordict_eq(BatchData(BatchData(batch()).chunk(4)).concat(), batch())


def test_batch_data_knows_what_it_can_do() -> None:
    proto = DataProto.from_dict({"a": torch.arange(4)})
    assert BatchData(proto).is_chunkable() and BatchData(batch()).is_chunkable()
    assert not BatchData(proto).is_concatable() and not BatchData([proto]).is_chunkable()
    assert BatchData([proto, proto]).is_concatable() and BatchData([batch()]).is_concatable()
    assert not BatchData([proto, batch()]).is_concatable() and not BatchData([]).is_concatable()
    with pytest.raises(DataError, match=r"got 'int'.*TensorDict or DataProto"):
        BatchData(3).chunk(2)
    with pytest.raises(DataError, match="a list of TensorDict or DataProto"):
        BatchData([proto, batch()]).concat()
