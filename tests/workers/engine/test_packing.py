# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Padded batches to packed rows and back."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.errors import DataError
from verl.workers.engine.packing import pack


def batch(prompt_lengths: list[int], response_lengths: list[int], prompt_width: int, response_width: int):
    """Token ids that name their sequence and place: 100 * sequence + place + 1; padding is 0."""
    rows, masks = [], []
    for index, (p, r) in enumerate(zip(prompt_lengths, response_lengths, strict=True)):
        tokens = [100 * index + place + 1 for place in range(p + r)]
        rows.append([0] * (prompt_width - p) + tokens + [0] * (response_width - r))
        masks.append([0] * (prompt_width - p) + [1] * (p + r) + [0] * (response_width - r))
    return torch.tensor(rows), torch.tensor(masks)


lengths = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(lengths=lengths, single_row=st.booleans(), remove_padding=st.booleans(), multiple=st.sampled_from([1, 4]))
def test_every_response_token_is_predicted_from_the_token_before_it(lengths, single_row, remove_padding, multiple):
    prompts, responses = [p for p, _ in lengths], [r for _, r in lengths]
    ids, mask = batch(prompts, responses, prompt_width=5, response_width=6)
    packed = pack(ids, mask, 6, single_row=single_row, remove_padding=remove_padding, multiple_of=multiple)
    # Only a token of the same sequence, one place earlier, may predict a target.
    source = packed.input_ids_RL.flatten()[packed.source_N]
    assert torch.equal(source + 1, packed.target_N)
    result = packed.unpack(packed.target_N.float())
    assert torch.equal(result, (ids * mask)[:, 5:].float())
    assert packed.input_ids_RL.shape[1] % multiple == 0


@settings(max_examples=60, deadline=None)
@given(lengths=lengths)
def test_positions_restart_where_a_sequence_starts_and_nowhere_else(lengths):
    ids, mask = batch([p for p, _ in lengths], [r for _, r in lengths], 5, 6)
    packed = pack(ids, mask, 6, single_row=False)
    tokens, positions = packed.input_ids_RL, packed.position_ids_RL
    real = tokens > 0
    assert torch.equal(positions[real], (tokens[real] - 1) % 100)
    assert int(real.sum()) == int(mask.sum())


def test_one_sequence_a_row_has_unbroken_positions_so_that_no_mask_is_built():
    ids, mask = batch([2, 3], [3, 2], 3, 3)
    packed = pack(ids, mask, 3, single_row=False)
    assert packed.position_ids_RL.tolist() == [[0, 1, 2, 3, 4]] * 2


def test_very_unequal_lengths_share_rows_of_the_longest_length():
    ids, mask = batch([1] * 9, [39] + [4] * 8, 1, 39)
    packed = pack(ids, mask, 39, single_row=False)
    assert packed.input_ids_RL.shape == (2, 40)


def test_without_removal_of_padding_each_sequence_keeps_its_row():
    ids, mask = batch([1] * 9, [39] + [4] * 8, 1, 39)
    assert pack(ids, mask, 39, single_row=True, remove_padding=False).input_ids_RL.shape == (9, 40)


def test_a_single_row_holds_exactly_the_valid_tokens():
    ids, mask = batch([2, 1, 3], [1, 4, 0], 3, 4)
    packed = pack(ids, mask, 4, single_row=True)
    assert packed.input_ids_RL.tolist() == [[1, 2, 3, 101, 102, 103, 104, 105, 201, 202, 203]]
    assert packed.position_ids_RL.tolist() == [[0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2]]


def test_the_first_token_of_a_sequence_has_no_target_when_all_columns_are_targets():
    ids, mask = batch([2], [2], 2, 2)
    packed = pack(ids, mask, 4, single_row=False)
    assert packed.target_N.tolist() == [2, 3, 4]
    assert packed.unpack(torch.ones(3)).tolist() == [[0, 1, 1, 1]]


def test_rows_without_any_token_give_zeros():
    ids, mask = torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, 4, dtype=torch.long)
    packed = pack(ids, mask, 2, single_row=True)
    assert packed.unpack(torch.zeros(0)).tolist() == [[0, 0], [0, 0]]


def test_gradients_flow_through_unpack():
    ids, mask = batch([1, 1], [2, 1], 1, 2)
    packed = pack(ids, mask, 2, single_row=False)
    value = torch.arange(1.0, 4.0, requires_grad=True)
    (packed.unpack(value) * torch.tensor([[1.0, 10.0], [100.0, 1000.0]])).sum().backward()
    assert value.grad.tolist() == [1.0, 10.0, 100.0]


def test_masks_of_another_shape_are_refused():
    with pytest.raises(DataError, match=r"\(2, 4\) and \(2, 3\)"):
        pack(torch.zeros(2, 4, dtype=torch.long), torch.ones(2, 3), 1, single_row=False)
