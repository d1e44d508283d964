# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""How a mini-batch is cut, and what normalises its loss."""

import pytest
import torch

from verl.errors import DataError
from verl.protocol import DataProto
from verl.workers.engine.micro_batches import batch_settings, count_globally, split_rows


def batch_of(lengths: list[int], **extra: torch.Tensor) -> DataProto:
    mask = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    return DataProto.from_dict({"attention_mask": mask, "response_mask": mask.clone(), **extra})


def rows(parts: list[torch.Tensor]) -> list[list[int]]:
    return [part.tolist() for part in parts]


def test_fixed_micro_batches_are_neighbouring_rows():
    parts = split_rows(batch_of([1] * 5), use_dynamic_bsz=False, max_token_len=None, micro_batch_size=2)
    assert rows(parts) == [[0, 1], [2, 3], [4]]


def test_without_a_size_all_rows_are_one_micro_batch():
    parts = split_rows(batch_of([1] * 3), use_dynamic_bsz=False, max_token_len=None, micro_batch_size=None)
    assert rows(parts) == [[0, 1, 2]]


def test_dynamic_micro_batches_keep_the_token_limit_and_lose_no_row():
    lengths = [7, 3, 5, 2, 2, 6, 1, 4]
    parts = rows(split_rows(batch_of(lengths), use_dynamic_bsz=True, max_token_len=8, micro_batch_size=None))
    assert sorted(row for part in parts for row in part) == list(range(8))
    assert max(sum(lengths[row] for row in part) for part in parts) <= 8


def test_what_fits_into_one_micro_batch_is_one():
    parts = split_rows(batch_of([2, 3]), use_dynamic_bsz=True, max_token_len=5, micro_batch_size=None)
    assert rows(parts) == [[0, 1]]


def test_a_row_beyond_the_limit_is_an_error_that_names_the_key():
    with pytest.raises(DataError, match="ppo_max_token_len_per_gpu"):
        split_rows(batch_of([2, 9]), use_dynamic_bsz=True, max_token_len=8, micro_batch_size=None)


def test_dynamic_micro_batches_without_a_limit_are_refused():
    with pytest.raises(DataError, match="ppo_max_token_len_per_gpu"):
        split_rows(batch_of([2]), use_dynamic_bsz=True, max_token_len=None, micro_batch_size=None)


def test_counts_leave_out_rows_without_a_mask(process_group):
    data = batch_of([3, 2, 4])
    data.batch["response_mask"][1] = 0
    counts = count_globally(data, None)
    assert (counts.num_tokens, counts.num_sequences) == (7, 2)


def test_a_loss_mask_counts_where_there_is_one(process_group):
    loss_mask = torch.tensor([[0, 0, 1], [0, 1, 1]])
    assert count_globally(batch_of([3, 3], loss_mask=loss_mask), None).num_tokens == 3


def test_an_empty_mask_counts_as_one_so_that_nothing_is_divided_by_zero(process_group):
    data = batch_of([2])
    data.batch["response_mask"].zero_()
    counts = count_globally(data, None)
    assert (counts.num_tokens, counts.num_sequences) == (1, 1)


def test_the_call_wins_over_the_configuration_and_inference_has_keys_of_its_own():
    config = {
        "use_dynamic_bsz": True,
        "max_token_len_per_gpu": 10,
        "infer_use_dynamic_bsz": False,
        "infer_micro_batch_size_per_gpu": 4,
    }
    data = batch_of([1])
    training = batch_settings(data, config, forward_only=False)
    assert training == {"use_dynamic_bsz": True, "max_token_len": 10, "micro_batch_size": None}
    inference = batch_settings(data, config, forward_only=True)
    assert inference == {"use_dynamic_bsz": False, "max_token_len": None, "micro_batch_size": 4}
    data.meta_info = {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 7}
    asked = batch_settings(data, config, forward_only=False)
    assert asked == {"use_dynamic_bsz": False, "max_token_len": 10, "micro_batch_size": 7}
