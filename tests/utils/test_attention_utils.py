# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Padded batches to packed tokens and back."""

import pytest
import torch

from verl.utils.attention_utils import index_first_axis, pad_input, rearrange, unpad_input

MASK = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1]])


def test_the_valid_tokens_lie_in_one_row_with_their_borders() -> None:
    ids = torch.arange(12).view(3, 4)
    tokens, indices, borders, longest, lengths = unpad_input(ids.unsqueeze(-1), attention_mask=MASK)
    assert tokens.squeeze(-1).tolist() == [1, 2, 3, 4, 5, 11]
    assert indices.tolist() == [1, 2, 3, 4, 5, 11]
    assert borders.tolist() == [0, 3, 5, 6] and borders.dtype == torch.int32
    assert longest == 3
    assert lengths.tolist() == [3, 2, 1]


def test_tokens_of_the_unused_mask_are_laid_out_but_not_counted() -> None:
    unused = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    _, indices, borders, longest, lengths = unpad_input(torch.zeros(3, 4, 2), MASK, unused)
    assert indices.tolist() == [0, 1, 2, 3, 4, 5, 11]
    assert (borders.tolist(), longest, lengths.tolist()) == ([0, 4, 6, 7], 4, [3, 2, 1])


def test_padding_again_gives_the_batch_with_zeros_outside_the_mask() -> None:
    hidden = torch.randn(3, 4, 2, 5)
    tokens, indices, *_ = unpad_input(hidden, MASK)
    assert tokens.shape == (6, 2, 5)
    again = pad_input(hidden_states=tokens, indices=indices, batch=3, seqlen=4)
    assert torch.equal(again, hidden * MASK[:, :, None, None])


def test_gradients_flow_through_both_ways_and_only_to_valid_tokens() -> None:
    hidden = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 4, 2, dtype=torch.float64)
    tokens, indices, *_ = unpad_input(hidden, MASK)
    (pad_input(tokens, indices, 3, 4) * weight).sum().backward()
    assert torch.equal(hidden.grad, weight * MASK[:, :, None])


def test_rows_are_taken_by_index_and_axes_by_pattern() -> None:
    tensor = torch.arange(12).view(2, 3, 2)
    pytest.importorskip("einops")
    flat = rearrange(tensor, "b s d -> (b s) d")
    assert torch.equal(index_first_axis(flat, torch.tensor([4, 0])), torch.tensor([[8, 9], [0, 1]]))
