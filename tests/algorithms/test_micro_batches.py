# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Micro-batches: under the budget, the same number on every rank, back in order."""

import itertools
import socket

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tensordict import TensorDict

from verl.algorithms.micro_batches import (
    prepare_dynamic_batch,
    rearrange_micro_batches,
    restore_dynamic_batch,
    split_evenly,
)
from verl.errors import DataError
from verl.protocol import DataProto


def batch_of(lengths: list[int], width: int | None = None) -> TensorDict:
    width = width or max(lengths)
    mask = (torch.arange(width) < torch.tensor(lengths).unsqueeze(-1)).long()
    return TensorDict({"attention_mask": mask, "row": torch.arange(len(lengths))}, batch_size=len(lengths))


def tokens(micro: TensorDict) -> int:
    return int(micro["attention_mask"].sum())


def test_rows_keep_their_columns_and_come_back_in_order() -> None:
    lengths = [5, 1, 9, 3, 3, 7, 2, 8]
    names = np.array([f"row{i}" for i in range(8)], dtype=object)
    data = DataProto(batch=batch_of(lengths), non_tensor_batch={"name": names}, meta_info={"temperature": 0.7})
    micros, rows = prepare_dynamic_batch(data, max_token_len=12)
    assert all(tokens(micro.batch) <= 12 for micro in micros) and len(micros) == 4
    assert sorted(row for part in rows for row in part) == list(range(8))
    for micro, part in zip(micros, rows, strict=True):
        assert micro.batch["row"].tolist() == part and micro.meta_info["temperature"] == 0.7
        assert micro.non_tensor_batch["name"].tolist() == [f"row{i}" for i in part]
    result = torch.cat([micro.batch["row"].double() * 2 for micro in micros])
    assert restore_dynamic_batch(result, rows).tolist() == [2.0 * row for row in range(8)]


def test_padding_does_not_count() -> None:
    micros, _ = rearrange_micro_batches(batch_of([10, 10], width=5000), max_token_len=100)
    assert len(micros) == 1
    with pytest.raises(DataError, match="at most 100 tokens"):
        rearrange_micro_batches(batch_of([10, 101], width=5000), max_token_len=100)


def test_nested_token_ids_need_no_mask() -> None:
    ids = torch.nested.nested_tensor([torch.ones(n) for n in (3, 5, 4)], layout=torch.jagged)
    batch = TensorDict({"input_ids": ids}, batch_size=3)
    micros, rows = rearrange_micro_batches(batch, max_token_len=8)
    assert sorted(itertools.chain.from_iterable(rows)) == [0, 1, 2] and len(micros) == 2
    with pytest.raises(DataError, match="attention_mask"):
        rearrange_micro_batches(TensorDict({"input_ids": torch.ones(2, 3)}, batch_size=2), 8)


def test_the_number_is_a_multiple_and_at_least_what_was_asked_for() -> None:
    batch = batch_of([4] * 12)
    assert len(rearrange_micro_batches(batch, 16)[0]) == 3
    assert len(rearrange_micro_batches(batch, 16, num_batches_divided_by=4)[0]) == 4
    assert len(rearrange_micro_batches(batch, 16, min_num_micro_batch=6)[0]) == 6
    with pytest.raises(DataError, match="fewer samples than micro-batches"):
        rearrange_micro_batches(batch_of([4, 4]), 16, num_batches_divided_by=4)


def test_neighbours_stay_together_in_groups() -> None:
    _, rows = rearrange_micro_batches(batch_of([9, 1, 5, 5, 2, 8, 3, 7]), 20, force_group_size=2)
    assert len(rows) == 2
    assert all(part[i] % 2 == 0 and part[i + 1] == part[i] + 1 for part in rows for i in range(0, len(part), 2))
    with pytest.raises(DataError, match="multiple of 3"):
        rearrange_micro_batches(batch_of([1, 2]), 20, force_group_size=3)


def test_cheap_micro_batches_stand_at_both_ends() -> None:
    micros, _ = rearrange_micro_batches(batch_of([10, 40, 20, 30]), 40, min_num_micro_batch=4)
    assert [tokens(micro) for micro in micros] == [20, 40, 30, 10]
    plain, _ = rearrange_micro_batches(
        batch_of([10, 40, 20, 30]), 40, min_num_micro_batch=4, use_dynamic_bsz_balance=False
    )
    assert sorted(map(tokens, plain)) == [10, 20, 30, 40]


def test_even_splits_differ_by_one_at_most() -> None:
    assert [len(part) for part in split_evenly(9, 4)] == [3, 2, 2, 2]
    assert list(itertools.chain.from_iterable(split_evenly(9, 4))) == list(range(9))


def _rank(rank: int, port: int, results: mp.Queue) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    micros, rows = rearrange_micro_batches(batch_of([100] * 4 if rank == 0 else [900] * 4), max_token_len=1000)
    alone, _ = rearrange_micro_batches(batch_of([100] * 4), max_token_len=1000, same_micro_num_in_dp=False)
    results.put((rank, [len(part) for part in rows], [tokens(micro) for micro in micros], len(alone)))
    dist.destroy_process_group()


def test_two_ranks_agree_on_the_number_without_being_given_a_group() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Forked, so that the children need not import torch again.
    context = mp.get_context("fork")
    results = context.Queue()
    ranks = [context.Process(target=_rank, args=(rank, port, results)) for rank in range(2)]
    for process in ranks:
        process.start()
    found = sorted(results.get(timeout=120) for _ in ranks)
    for process in ranks:
        process.join(timeout=60)
        assert process.exitcode == 0
    assert found == [(0, [1, 1, 1, 1], [100] * 4, 1), (1, [1, 1, 1, 1], [900] * 4, 1)]
