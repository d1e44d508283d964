# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Padding is left behind only where nothing is lost by it."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.protocol import DataProto, ragged
from verl.protocol.columns import same_value


@pytest.fixture(autouse=True)
def small_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "MIN_BYTES", 0)


def padded(prompt_len_B: list[int], response_len_B: list[int], width_P: int, width_T: int) -> dict[str, torch.Tensor]:
    """A batch as the agent loop makes it, with every kind of column."""
    positions = torch.arange(width_P + width_T)
    prompt_len_B1, response_len_B1 = torch.tensor(prompt_len_B)[:, None], torch.tensor(response_len_B)[:, None]
    mask = ((positions >= width_P - prompt_len_B1) & (positions < width_P + response_len_B1)).long()
    ids = torch.randint(1, 50_000, mask.shape) * mask
    return {
        "prompts": ids[:, :width_P].contiguous(),
        "responses": ids[:, width_P:].contiguous(),
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
        "response_mask": mask[:, width_P:].bool(),
        "old_log_probs": torch.randn(len(prompt_len_B), width_T) * mask[:, width_P:],
        "half": (torch.randn(len(prompt_len_B), width_T) * mask[:, width_P:]).to(torch.bfloat16),
        "per_row": torch.arange(len(prompt_len_B)),
    }


def sent_bytes(data: DataProto) -> int:
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


@settings(max_examples=40, deadline=None)
@given(
    lens=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), min_size=1, max_size=6),
    width_P=st.integers(5, 8),
    width_T=st.integers(7, 9),
)
def test_every_batch_arrives_value_for_value(lens: list[tuple[int, int]], width_P: int, width_T: int) -> None:
    tensors = padded([p for p, _ in lens], [t for _, t in lens], width_P, width_T)
    data = DataProto.from_dict(tensors, {"uid": list(range(len(lens)))})
    again = pickle.loads(pickle.dumps(data, protocol=5))
    assert same_value(dict(again.batch.items()), tensors)
    assert {key: tensor.dtype for key, tensor in again.batch.items()} == {key: t.dtype for key, t in tensors.items()}


def test_a_mostly_empty_batch_travels_at_a_fraction_of_its_size() -> None:
    tensors = padded([10] * 64, [100] * 64, 256, 1024)
    held = sum(tensor.nbytes for tensor in tensors.values())
    assert sent_bytes(DataProto.from_dict(tensors)) < held / 12


def test_what_stands_in_the_padding_is_not_lost() -> None:
    tensors = padded([2, 3], [2, 1], 8, 8)
    noise = torch.randn(2, 8)
    not_a_number = torch.full((2, 8), float("nan"))
    holes = tensors["attention_mask"].clone()
    holes[0, 6] = 0
    for extra in ({"noise": noise}, {"values": not_a_number}, {"attention_mask": holes}):
        data = DataProto.from_dict({**tensors, **extra})
        again = pickle.loads(pickle.dumps(data, protocol=5))
        assert same_value(dict(again.batch.items()), dict(data.batch.items()))


def test_a_full_batch_and_one_without_a_mask_are_left_as_they_are() -> None:
    full = padded([4, 4], [4, 4], 4, 4)
    assert ragged.find_runs(full) is None
    half = padded([1, 1], [1, 1], 4, 4)
    assert ragged.find_runs(half) is not None
    assert ragged.find_runs({key: tensor for key, tensor in half.items() if key != "attention_mask"}) is None


def test_integers_travel_in_the_smallest_type_that_holds_them() -> None:
    runs = {"T": ragged.Runs(np.zeros(1, dtype=int), np.array([2]))}
    for top, dtype in ((1, np.int8), (300, np.int16), (70_000, np.int32), (1 << 40, np.int64)):
        tensor = torch.tensor([[top, -top, 0, 0]])
        stripped = ragged.strip("x", tensor, runs, {"T": 4})
        assert stripped.tokens_K.dtype == dtype
        assert torch.equal(ragged.restore(stripped, runs), tensor)
