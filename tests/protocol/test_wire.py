# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Bytes: what is sent arrives, nothing is changed on the way, and a file never runs code."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from verl.errors import DataError
from verl.protocol import (
    DataProto,
    deserialize_single_tensor,
    deserialize_tensordict,
    serialize_single_tensor,
    serialize_tensordict,
)
from verl.protocol.columns import nest, same_value
from verl.protocol.td import TensorDict

BATCHES = {
    "nothing": DataProto(),
    "meta only": DataProto(meta_info={"t": 1}),
    "no tensors in it": DataProto(batch=TensorDict({}, batch_size=[0])),
    "no rows": DataProto.from_dict({"x": torch.zeros(0, 3)}),
    "columns only": DataProto.from_dict(non_tensors={"uid": ["a", None, {"b": [1]}]}),
    "normal": DataProto.from_dict(
        {
            "x": torch.arange(6).reshape(2, 3),
            "h": torch.ones(2, 2, dtype=torch.bfloat16),
            "m": torch.tensor([True, False]),
        },
        {"uid": ["a", "b"], "n": np.array([1.5, 2.5])},
        {"t": 0.7, "lens": np.array([3, 4])},
    ),
    "strided": DataProto.from_dict({"x": torch.arange(12).reshape(3, 4).t()[:, ::2], "y": torch.arange(8)[::2]}),
    "ragged": DataProto.from_dict(
        {"x": nest([torch.arange(3), torch.arange(5)]), "y": nest([torch.ones(2, 3), torch.ones(2, 1)], 2)}
    ),
}


def same(a: DataProto, b: DataProto) -> bool:
    tensors = [None if data.batch is None else dict(data.batch.items()) for data in (a, b)]
    return same_value(tensors[0], tensors[1]) and same_value(
        [a.non_tensor_batch, a.meta_info], [b.non_tensor_batch, b.meta_info]
    )


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("protocol", [2, 5])
def test_a_pickle_round_trip_gives_an_equal_batch_and_changes_nothing(name: str, protocol: int) -> None:
    data = BATCHES[name]
    before = (
        None
        if data.batch is None
        else {key: tensor.data_ptr() for key, tensor in data.batch.items() if not tensor.is_nested}
    )
    again = pickle.loads(pickle.dumps(data, protocol=protocol))
    assert same(again, data)
    assert len(again) == len(data)
    after = (
        None
        if data.batch is None
        else {key: tensor.data_ptr() for key, tensor in data.batch.items() if not tensor.is_nested}
    )
    assert before == after


def test_tensors_travel_out_of_band_without_a_copy() -> None:
    data = DataProto.from_dict({"x": torch.arange(1000)})
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
    assert len(head) < 1000
    assert len(buffers) == 1
    data.batch["x"][0] = 77
    assert np.frombuffer(buffers[0].raw(), dtype=np.int64)[0] == 77


def test_a_slice_sends_its_own_rows_only() -> None:
    part = DataProto.from_dict({"x": torch.zeros(1000, 100)}).slice(10, 12)
    assert len(pickle.dumps(part, protocol=5)) < 2000


def test_what_arrives_from_read_only_memory_can_be_written() -> None:
    data = DataProto.from_dict({"x": torch.arange(4)})
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
    frozen = [bytes(buffer.raw()) for buffer in buffers]
    again = pickle.loads(head, buffers=frozen)
    again.batch["x"][0] = 9
    assert np.frombuffer(frozen[0], dtype=np.int64)[0] == 0


def test_tensors_serialise_to_views_of_their_memory() -> None:
    tensor = torch.arange(6, dtype=torch.int32).reshape(2, 3)
    dtype, shape, view = serialize_single_tensor(tensor)
    assert (dtype, shape, view.nbytes) == ("int32", (2, 3), 24)
    tensor[0, 0] = 5
    assert torch.equal(deserialize_single_tensor((dtype, shape, view)), tensor)
    assert torch.equal(deserialize_single_tensor((dtype, shape, bytes(view))), tensor)
    with pytest.raises(DataError, match="torch dtype"):
        deserialize_single_tensor(("Tensor", (1,), b"1234"))


def test_a_tensordict_serialises_with_its_ragged_tensors() -> None:
    batch = BATCHES["ragged"].batch
    again = deserialize_tensordict(serialize_tensordict(batch))
    assert again.batch_size == batch.batch_size
    assert all(same_value(again[key], batch[key]) for key in list(batch.keys()))


@pytest.mark.parametrize("name", BATCHES)
def test_a_file_round_trip_gives_an_equal_batch(name: str, tmp_path: Path) -> None:
    BATCHES[name].save_to_disk(tmp_path / "batch")
    assert same(DataProto.load_from_disk(tmp_path / "batch"), BATCHES[name])


class Opaque:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.value == self.value


def test_objects_are_saved_and_loaded_only_when_asked_for(tmp_path: Path) -> None:
    data = DataProto.from_dict(non_tensors={"o": [Opaque(1)], "set": [{1, 2}], "pair": [(1, 2)]})
    with pytest.raises(DataError, match=r"cannot be saved as plain data.*Opaque"):
        data.save_to_disk(tmp_path / "batch")
    data.save_to_disk(tmp_path / "batch", allow_pickle=True)
    with pytest.raises(DataError, match="pickled objects"):
        DataProto.load_from_disk(tmp_path / "batch")
    assert DataProto.load_from_disk(tmp_path / "batch", allow_pickle=True).non_tensor_batch["o"][0] == Opaque(1)


def test_a_pickle_is_not_mistaken_for_a_batch(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple:
            return (tmp_path.joinpath("exploded").touch, ())

    (tmp_path / "batch").write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(DataError, match="not a file written by"):
        DataProto.load_from_disk(tmp_path / "batch")
    DataProto.from_dict(non_tensors={"o": [Bomb()]}).save_to_disk(tmp_path / "bomb", allow_pickle=True)
    with pytest.raises(DataError, match="pickled objects"):
        DataProto.load_from_disk(tmp_path / "bomb")
    assert not (tmp_path / "exploded").exists()


def test_tuples_sets_and_integer_keys_survive_a_file(tmp_path: Path) -> None:
    data = DataProto.from_dict(non_tensors={"k": [{"pair": (1, 2), "set": {3}, "by_number": {1: "a"}}]})
    data.save_to_disk(tmp_path / "batch")
    assert DataProto.load_from_disk(tmp_path / "batch").non_tensor_batch["k"][0] == data.non_tensor_batch["k"][0]
