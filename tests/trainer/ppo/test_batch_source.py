# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Padding rows change nothing, and balanced rows are the same rows."""

from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.algorithms.batch_balance import get_reverse_idx
from verl.config.validate import data_parallel_size
from verl.protocol import DataProto
from verl.trainer.ppo.batch_source import balance_batch, pad_with_masked_rows, without_padding


def batch_of(lengths: list[int]) -> DataProto:
    width = max(lengths)
    mask_BT = torch.tensor([[1] * n + [0] * (width - n) for n in lengths])
    return DataProto.from_dict(
        tensors={
            "response_mask": mask_BT,
            "attention_mask": mask_BT.clone(),
            "rm_scores": mask_BT.float(),
            "row": torch.arange(len(lengths)),
        },
        non_tensors={"uid": np.array([f"u{i // 2}" for i in range(len(lengths))], dtype=object)},
        meta_info={"temperature": 1.0},
    )


def test_rows_are_filled_up_to_whole_minibatches_with_masked_copies() -> None:
    padded = pad_with_masked_rows(batch_of([3, 1, 2]), multiple=4)
    assert len(padded) == 4
    assert padded.batch["response_mask"][3].sum() == 0
    assert padded.batch["rm_scores"][3].sum() == 0
    assert padded.non_tensor_batch["uid"].tolist() == ["u0", "u0", "u1", "padding-0"]
    assert padded.meta_info["temperature"] == 1.0


def test_a_batch_that_fits_is_returned_as_it_is() -> None:
    batch = batch_of([1, 2])
    assert pad_with_masked_rows(batch, multiple=2) is batch


def test_padding_leaves_the_original_rows_untouched() -> None:
    batch = batch_of([3, 1, 2])
    padded = pad_with_masked_rows(batch, multiple=4)
    assert torch.equal(padded.batch["response_mask"][:3], batch.batch["response_mask"])
    assert batch.batch["response_mask"].sum() == 6


def test_the_filling_rows_come_out_again_wherever_they_stand() -> None:
    batch = batch_of([3, 1, 2])
    padded = pad_with_masked_rows(batch, multiple=8)
    padded.meta_info["global_token_num"] = padded.batch["attention_mask"].sum(-1).tolist()
    padded.reorder(torch.tensor([7, 2, 5, 0, 4, 1, 3, 6]))
    real = without_padding(padded)
    assert real.batch["row"].tolist() == [2, 0, 1]
    assert real.meta_info["global_token_num"] == [2, 3, 1] and real.meta_info["temperature"] == 1.0
    assert without_padding(batch) is batch


@given(st.lists(st.integers(1, 30), min_size=2, max_size=24).filter(lambda lengths: len(lengths) % 2 == 0))
@settings(deadline=None, max_examples=30)
def test_balancing_only_reorders(lengths: list[int]) -> None:
    batch = batch_of(lengths)
    metrics = balance_batch(batch, dp_size=2)
    assert sorted(batch.batch["row"].tolist()) == list(range(len(lengths)))
    assert batch.batch["attention_mask"].sum(-1).tolist() == [lengths[row] for row in batch.batch["row"].tolist()]
    uids = batch.non_tensor_batch["uid"].tolist()
    assert uids == [f"u{row // 2}" for row in batch.batch["row"].tolist()]
    half = len(lengths) // 2
    shares = [batch.batch["attention_mask"][:half].sum().item(), batch.batch["attention_mask"][half:].sum().item()]
    assert sorted(shares) == sorted([metrics["global_seqlen/balanced_min"], metrics["global_seqlen/balanced_max"]])


def test_two_sequence_parallel_ranks_share_one_part_of_the_batch() -> None:
    policy = SimpleNamespace(actor=SimpleNamespace(ulysses_sequence_parallel_size=2))
    dp_size = data_parallel_size(SimpleNamespace(actor_rollout_ref=policy, trainer=SimpleNamespace(num_devices=8)))
    batch = batch_of([8, 1, 7, 2, 6, 3, 5, 4])
    balance_batch(batch, dp_size)
    parts = batch.chunk(dp_size)
    assert dp_size == 4 and [len(part) for part in parts] == [2, 2, 2, 2]
    assert [part.batch["attention_mask"].sum().item() for part in parts] == [9] * 4


def test_an_uneven_batch_is_spread_by_at_most_one_row_and_its_order_can_be_restored() -> None:
    lengths = [5, 1, 4, 2, 3, 3, 2, 4, 1, 5]
    batch = batch_of(lengths)
    before = {key: tensor.clone() for key, tensor in batch.batch.items()}
    uids = batch.non_tensor_batch["uid"].tolist()
    balance_batch(batch, dp_size=4)
    assert [len(part) for part in batch.chunk(4)] == [3, 3, 2, 2]
    batch.reorder(torch.tensor(get_reverse_idx(batch.batch["row"].tolist())))
    assert batch.non_tensor_batch["uid"].tolist() == uids
    assert all(torch.equal(batch.batch[key], tensor) for key, tensor in before.items())
