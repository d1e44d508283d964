# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""DataProto: building, choosing rows and columns, joining, and the corner cases of empty batches."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from verl.errors import DataError
from verl.protocol import DataProto, DataProtoConfig, DataProtoItem, collate_fn
from verl.protocol.td import TensorDict


def make(rows: int = 4) -> DataProto:
    return DataProto.from_dict(
        {"obs": torch.arange(rows * 3).reshape(rows, 3), "act": torch.arange(rows, dtype=torch.float32)},
        {"uid": [f"u{row}" for row in range(rows)], "pair": [[row, row + 1] for row in range(rows)]},
        {"temperature": 0.7},
    )


def test_importing_the_batch_does_not_load_the_compiler() -> None:
    program = "import sys, verl.protocol; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


def test_equal_length_lists_stay_one_python_value_per_row() -> None:
    data = DataProto.from_dict(
        non_tensors={"k": [[1, 2], [3, 4]], "messages": [[{"role": "user"}], [{"role": "tool"}]]}
    )
    assert data.non_tensor_batch["k"].shape == (2,)
    assert data.non_tensor_batch["k"].dtype == object
    assert data.non_tensor_batch["k"][0] == [1, 2]
    other = DataProto.from_dict(non_tensors={"k": [[1], [2, 3, 4]], "messages": [[], [{}]]})
    joined = DataProto.concat([data, other])
    assert joined.non_tensor_batch["k"].tolist() == [[1, 2], [3, 4], [1], [2, 3, 4]]


def test_a_two_dimensional_object_array_becomes_one_value_per_row() -> None:
    data = DataProto.from_dict(non_tensors={"k": np.array([[1, 2], [3, 4]], dtype=object)})
    assert data.non_tensor_batch["k"].shape == (2,)
    assert data.non_tensor_batch["k"][1] == [3, 4]


def test_from_single_dict_sorts_tensors_from_columns() -> None:
    data = DataProto.from_single_dict({"a": torch.zeros(2, 3), "b": np.array(["x", "y"], dtype=object)}, {"t": 1})
    assert set(data.batch.keys()) == {"a"}
    assert data.non_tensor_batch["b"].tolist() == ["x", "y"]
    assert data.meta_info == {"t": 1}


def test_batch_size_disagreements_name_the_key() -> None:
    with pytest.raises(DataError, match="b: tensors disagree"):
        DataProto.from_dict({"a": torch.zeros(2), "b": torch.zeros(3)})
    with pytest.raises(DataError, match="uid: the column's length"):
        DataProto.from_dict({"a": torch.zeros(2)}, {"uid": ["x"]})
    with pytest.raises(DataError, match="uid: a non-tensor column must be"):
        DataProto(non_tensor_batch={"uid": ["x"]})


def test_length_of_batches_without_tensors_without_columns_and_without_rows() -> None:
    assert len(DataProto()) == 0
    assert len(DataProto(meta_info={"only": "meta"})) == 0
    assert len(DataProto.from_dict(non_tensors={"uid": ["a", "b"]})) == 2
    assert len(DataProto.from_dict({"x": torch.zeros(0, 3)})) == 0
    assert len(DataProto(batch=TensorDict({}, batch_size=[]).expand(3))) == 3


def test_indexing_by_int_slice_list_array_tensor_and_mask() -> None:
    data = make()
    item = data[1]
    assert isinstance(item, DataProtoItem)
    assert item.batch["obs"].tolist() == [3, 4, 5]
    assert item.non_tensor_batch == {"uid": "u1", "pair": [1, 2]}
    assert item.meta_info == data.meta_info
    for rows in ([3, 1], np.array([3, 1]), torch.tensor([3, 1]), range(3, 0, -2)):
        assert data[rows].non_tensor_batch["uid"].tolist() == ["u3", "u1"]
    for mask in (torch.tensor([True, False, False, True]), np.array([True, False, False, True])):
        assert data[mask].batch["act"].tolist() == [0.0, 3.0]
    assert data[1:3].non_tensor_batch["uid"].tolist() == ["u1", "u2"]
    assert data[::-1].batch["act"].tolist() == [3.0, 2.0, 1.0, 0.0]
    assert data[::-1].non_tensor_batch["uid"].tolist() == ["u3", "u2", "u1", "u0"]
    assert data[-1].non_tensor_batch["uid"] == "u3"
    assert len(data[[]]) == 0
    assert [row.non_tensor_batch["uid"] for row in data] == ["u0", "u1", "u2", "u3"]


def test_a_wrong_index_is_refused() -> None:
    with pytest.raises(IndexError):
        make()[4]
    with pytest.raises(DataError, match="row mask"):
        make()[torch.tensor([True])]
    with pytest.raises(DataError, match="rows are chosen"):
        make()["obs"]


def test_a_slice_shares_memory_and_a_selection_of_rows_does_not() -> None:
    data = make()
    data.slice(0, 2).batch["obs"][0, 0] = 100
    assert data.batch["obs"][0, 0] == 100
    data.select_idxs([0]).batch["obs"][0, 0] = 200
    assert data.batch["obs"][0, 0] == 100


def test_select_with_none_takes_all_and_with_an_empty_list_takes_none() -> None:
    data = make()
    assert set(data.select(batch_keys=["obs"]).batch.keys()) == {"obs"}
    assert set(data.select(batch_keys=["obs"]).non_tensor_batch) == {"uid", "pair"}
    bare = data.select(batch_keys=[], non_tensor_batch_keys=[], meta_info_keys=[])
    assert (list(bare.batch.keys()), bare.non_tensor_batch, bare.meta_info) == ([], {}, {})
    assert len(bare) == 4
    copied = data.select(deepcopy=True)
    copied.batch["obs"][0, 0] = 100
    copied.non_tensor_batch["pair"][0].append(3)
    assert data.batch["obs"][0, 0] == 0
    assert data.non_tensor_batch["pair"][0] == [0, 1]


def test_pop_moves_columns_and_leaves_the_rest() -> None:
    data = make()
    taken = data.pop(batch_keys=["obs"], non_tensor_batch_keys=["uid"], meta_info_keys=["temperature"])
    assert set(taken.batch.keys()) == {"obs"}
    assert set(taken.non_tensor_batch) == {"uid"}
    assert taken.meta_info == {"temperature": 0.7}
    assert set(data.batch.keys()) == {"act"}
    assert set(data.non_tensor_batch) == {"pair"}
    assert data.meta_info == {}
    assert data.pop(non_tensor_batch_keys=["pair"]).batch is None
    with pytest.raises(DataError, match=r"no such tensor.*\['obs'\].*\['act'\]"):
        data.pop(batch_keys=["obs"])


def test_popping_every_tensor_keeps_the_number_of_rows() -> None:
    data = make()
    data.pop(batch_keys=["obs", "act"], non_tensor_batch_keys=["uid", "pair"])
    assert len(data) == 4


def test_rename_works_on_tensors_and_columns() -> None:
    data = make().rename("obs", "states").rename(["uid", "act"], ["group", "actions"])
    assert set(data.batch.keys()) == {"states", "actions"}
    assert set(data.non_tensor_batch) == {"group", "pair"}
    with pytest.raises(DataError, match="as many new keys"):
        data.rename(["states"], ["a", "b"])


def test_union_adds_columns_and_names_conflicts() -> None:
    data = make()
    other = DataProto.from_dict(
        {"ref": torch.ones(4), "act": data.batch["act"].clone()}, {"uid": ["u0", "u1", "u2", "u3"]}
    )
    assert data.union(other) is data
    assert set(data.batch.keys()) == {"obs", "act", "ref"}
    with pytest.raises(DataError, match="act: both batches"):
        data.union(DataProto.from_dict({"act": torch.zeros(4)}))
    with pytest.raises(DataError, match="uid: both batches"):
        data.union(DataProto.from_dict(non_tensors={"uid": list("abcd")}))
    with pytest.raises(DataError, match="temperature: both batches"):
        data.union(DataProto(meta_info={"temperature": 1.0}))
    with pytest.raises(DataError, match="different size"):
        data.union(DataProto.from_dict({"z": torch.zeros(3)}))


def test_union_with_a_batch_that_has_no_tensors() -> None:
    columns = DataProto.from_dict(non_tensors={"uid": ["a", "b"]})
    columns.union(DataProto.from_dict({"x": torch.zeros(2)}))
    assert columns.batch["x"].shape == (2,)
    columns.union(DataProto(meta_info={"t": 1}))
    assert columns.meta_info == {"t": 1}


def test_mini_batches_cover_every_row_once_an_epoch_and_repeat_with_the_seed() -> None:
    data = make(6)

    def epochs(seed: int) -> list[list[str]]:
        batches = data.make_iterator(2, epochs=2, seed=seed, dataloader_kwargs={"shuffle": True})
        return [batch.non_tensor_batch["uid"].tolist() for batch in batches]

    first = epochs(1)
    assert len(first) == 6
    for epoch in (first[:3], first[3:]):
        assert sorted(uid for batch in epoch for uid in batch) == [f"u{row}" for row in range(6)]
    assert first[:3] != first[3:]
    assert epochs(1) == first
    assert epochs(2) != first
    in_order = [batch.batch["act"].tolist() for batch in data.make_iterator(3, epochs=1)]
    assert in_order == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert next(iter(data.make_iterator(3, 1))).meta_info == data.meta_info
    with pytest.raises(DataError, match="6 rows by 4"):
        data.make_iterator(4, epochs=1)


def test_collate_stacks_tensors_and_keeps_values_apart() -> None:
    data = make()
    again = collate_fn([data[2], data[0]])
    assert again.batch["obs"].tolist() == [[6, 7, 8], [0, 1, 2]]
    assert again.non_tensor_batch["pair"].tolist() == [[2, 3], [0, 1]]
    assert again.non_tensor_batch["pair"].shape == (2,)


def test_padding_is_off_by_default_and_switched_by_environment_class_or_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_AUTO_PADDING", raising=False)
    assert not make().is_padding_enabled()
    assert DataProto.from_dict({"a": torch.zeros(1)}, auto_padding=True).is_padding_enabled()
    for text, expected in (("TRUE", True), ("1", True), ("false", False), ("0", False), ("", False)):
        monkeypatch.setenv("VERL_AUTO_PADDING", text)
        assert make().is_padding_enabled() is expected
    monkeypatch.setattr(DataProtoConfig, "_override", None)
    DataProtoConfig.auto_padding = True
    assert make().is_padding_enabled()


def test_padding_appends_copies_of_the_first_or_last_row() -> None:
    data = make()
    data.padding(2)
    assert data.non_tensor_batch["uid"].tolist() == ["u0", "u1", "u2", "u3", "u0", "u0"]
    data.padding(1, "last")
    assert data.batch["act"].tolist() == [0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0]
    with pytest.raises(DataError, match="'first' or 'last'"):
        data.padding(1, "middle")
    with pytest.raises(DataError, match="empty batch"):
        DataProto().padding(1)


def test_several_batch_dimensions_are_for_tensors_only() -> None:
    data = DataProto.from_dict({"a": torch.zeros(2, 3, 5), "b": torch.zeros(2, 3)}, num_batch_dims=2)
    assert data.batch.batch_size == (2, 3)
    with pytest.raises(DataError, match="one batch dimension only"):
        DataProto.from_dict({"a": torch.zeros(2, 3)}, {"uid": ["a", "b"]}, num_batch_dims=2)


def test_the_description_names_every_column() -> None:
    text = make().get_data_info()
    assert "batch[obs]: (4, 3) torch.int64 cpu" in text
    assert "non_tensor_batch[pair]: (4,) object" in text
    assert "meta_info[temperature]: float" in text


def test_moving_to_a_device_changes_the_tensors_only() -> None:
    data = make().to("meta")
    assert data.batch["obs"].device.type == "meta"
    assert data.non_tensor_batch["uid"][0] == "u0"


def test_code_that_needs_tensors_says_so_where_there_are_none() -> None:
    assert DataProto.from_dict({"x": torch.zeros(2, 1)}).tensors["x"].shape == (2, 1)
    with pytest.raises(DataError, match=r"no tensors.*'uid'"):
        _ = DataProto.from_dict(non_tensors={"uid": ["a", "b"]}).tensors
