# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Joining two batches: what is equal, what conflicts, and what becomes of metrics."""

import numpy as np
import pytest
import torch

from verl.errors import DataError
from verl.protocol import DataProto, union_numpy_dict, union_tensor_dict
from verl.protocol.columns import object_column, same_value
from verl.protocol.merge import concat_meta_info
from verl.protocol.td import TensorDict


def cubes() -> np.ndarray:
    return object_column([np.full((2, 2, 2), np.nan), np.arange(8.0).reshape(2, 2, 2)])


def test_object_arrays_of_cubes_with_nan_unite_with_themselves_and_their_equals() -> None:
    column = cubes()
    assert union_numpy_dict({"k": column}, {"k": column})["k"] is column
    union_numpy_dict({"k": cubes()}, {"k": cubes()})
    changed = cubes()
    changed[1][0, 0, 0] = 100.0
    with pytest.raises(DataError, match="k: both batches"):
        union_numpy_dict({"k": cubes()}, {"k": changed})


def test_tensors_with_nan_unite_and_differing_ones_are_named() -> None:
    first = TensorDict({"a": torch.tensor([1.0, float("nan")])}, batch_size=[2])
    second = TensorDict({"a": torch.tensor([1.0, float("nan")]), "b": torch.ones(2)}, batch_size=[2])
    assert set(union_tensor_dict(first, second).keys()) == {"a", "b"}
    with pytest.raises(DataError, match="a: both batches"):
        union_tensor_dict(first, TensorDict({"a": torch.tensor([1.0, 2.0])}, batch_size=[2]))
    with pytest.raises(DataError, match="different size"):
        union_tensor_dict(first, TensorDict({}, batch_size=[3]))


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (float("nan"), float("nan"), True),
        ([1, {"x": float("nan")}], [1, {"x": float("nan")}], True),
        ([1, 2], (1, 2), False),
        (np.array(["a", "b"]), np.array(["a", "b"]), True),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), True),
        (np.array([1, 2]), np.array([[1, 2]]), False),
        (torch.tensor([1.0]), np.array([1.0]), False),
        (torch.tensor([1.0]), torch.tensor([1], dtype=torch.int64), False),
        ({"a": torch.zeros(2)}, {"a": torch.zeros(2)}, True),
        ({"a": 1}, {"b": 1}, False),
        (None, None, True),
        (None, 0, False),
    ],
)
def test_values_are_compared_deeply_and_by_kind(a: object, b: object, same: bool) -> None:
    assert same_value(a, b) is same


def test_metrics_of_all_parts_are_kept() -> None:
    as_rows = concat_meta_info([{"metrics": [{"a": 1}]}, {"metrics": [{"a": 2}]}])
    assert as_rows["metrics"] == {"a": [1, 2]}
    as_dicts = concat_meta_info([{"metrics": {"a": 1, "b": 5}}, {"metrics": {"a": 2}}, {"metrics": None}, {}])
    assert as_dicts["metrics"] == {"a": [1, 2], "b": [5]}
    assert concat_meta_info([as_dicts, {"metrics": {"a": 3}}])["metrics"] == {"a": [1, 2, 3], "b": [5]}


def test_one_part_has_metrics_of_the_same_form() -> None:
    assert concat_meta_info([{"metrics": {"a": 1}}])["metrics"] == {"a": [1]}
    assert "metrics" not in concat_meta_info([{"t": 1}])


def test_the_longest_time_of_any_part_is_kept() -> None:
    merged = concat_meta_info([{"timing": {"gen": 1.0, "old": 4.0}}, {"timing": {"gen": 2.0, "new": 3.0}}])
    assert merged["timing"] == {"gen": 2.0, "old": 4.0, "new": 3.0}


def test_other_facts_must_agree() -> None:
    merged = concat_meta_info([{"t": 1, "lens": np.array([1, 2])}, {"t": 1, "lens": np.array([1, 2])}, {"u": 2}])
    assert (merged["t"], merged["u"]) == (1, 2)
    with pytest.raises(DataError, match=r"t: the parts disagree.*1 and 2"):
        concat_meta_info([{"t": 1}, {"t": 2}])


def test_concat_does_not_touch_the_parts() -> None:
    parts = [DataProto.from_dict({"x": torch.zeros(1)}, meta_info={"metrics": {"a": 1}}) for _ in range(2)]
    DataProto.concat(parts).meta_info["metrics"]["a"].append(9)
    assert [part.meta_info for part in parts] == [{"metrics": {"a": 1}}] * 2
