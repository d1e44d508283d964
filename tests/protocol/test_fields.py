# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The glossary catches tensors that contradict it, and knows every key it should."""

import pytest
import torch

from verl.errors import DataError
from verl.protocol import DataProto
from verl.protocol.fields import COLUMNS, META_INFO, TENSORS

P, T = 3, 5


def good() -> dict[str, torch.Tensor]:
    return {
        "prompts": torch.zeros(2, P, dtype=torch.int64),
        "responses": torch.zeros(2, T, dtype=torch.int64),
        "input_ids": torch.zeros(2, P + T, dtype=torch.int64),
        "position_ids": torch.zeros(2, 4, P + T, dtype=torch.int64),
        "response_mask": torch.ones(2, T, dtype=torch.bool),
        "advantages": torch.zeros(2, T),
        "my_own": torch.zeros(2, 17),
    }


def test_a_batch_as_the_glossary_says_passes() -> None:
    DataProto.from_dict(good(), {"uid": ["a", "b"]}).check()


@pytest.mark.parametrize(
    ("key", "tensor", "message"),
    [
        ("advantages", torch.zeros(2, T + 1), r"advantages: T differs from that of responses"),
        ("advantages", torch.zeros(2, T, dtype=torch.int64), "advantages: wrong kind"),
        ("responses", torch.zeros(2, T), "responses: wrong kind"),
        ("input_ids", torch.zeros(2, P, dtype=torch.int64), "do not add up|S differs"),
        ("advantages", torch.zeros(2), r"wrong number of dimensions.*\[BT\]"),
    ],
)
def test_a_contradiction_is_named(key: str, tensor: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        DataProto.from_dict({**good(), key: tensor}).check()


def test_a_tensor_among_the_columns_is_named() -> None:
    data = DataProto.from_dict({"responses": torch.zeros(2, T, dtype=torch.int64)}, {"advantages": [1.0, 2.0]})
    with pytest.raises(DataError, match=r"advantages.*put them into `batch`"):
        data.check()


def test_no_name_has_two_meanings() -> None:
    assert (
        not (TENSORS.keys() & COLUMNS.keys())
        | (TENSORS.keys() & META_INFO.keys())
        | (COLUMNS.keys() & META_INFO.keys())
    )
