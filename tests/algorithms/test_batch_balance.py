# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Batch balance: every sample once, alike in cost, and never above the budget."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.algorithms.batch_balance import (
    calculate_workload,
    get_group_balanced_partitions,
    get_reverse_idx,
    get_seqlen_balanced_partitions,
    greedy_partition,
    karmarkar_karp,
    log_seqlen_unbalance,
    partition_by_budget,
    roundup_divisible,
)
from verl.errors import DataError

LENGTHS = st.lists(st.integers(0, 200), min_size=1, max_size=40)


def sums(parts: list[list[int]], lengths: list[int]) -> list[int]:
    return [sum(lengths[item] for item in part) for part in parts]


def everything(parts: list[list[int]]) -> list[int]:
    return sorted(itertools.chain.from_iterable(parts))


@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, k=st.integers(1, 10), equal_size=st.booleans())
def test_each_sample_is_in_one_part_and_no_part_is_empty(lengths: list[int], k: int, equal_size: bool) -> None:
    k = min(k, len(lengths))
    parts = get_seqlen_balanced_partitions(lengths, k, equal_size)
    assert everything(parts) == list(range(len(lengths))) and all(parts) and len(parts) == k
    assert all(part == sorted(part) for part in parts)
    if equal_size:
        counts = [len(part) for part in parts]
        assert counts == sorted(counts, reverse=True) and max(counts) - min(counts) <= 1


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 200), min_size=2, max_size=40), k=st.integers(1, 10))
def test_differencing_is_never_further_apart_than_its_largest_item(lengths: list[int], k: int) -> None:
    k = min(k, len(lengths))
    found = sums(karmarkar_karp(lengths, k, equal_size=False), lengths)
    assert max(found) - min(found) <= max(lengths)


def test_differencing_finds_the_textbook_split() -> None:
    # Karmarkar and Karp's example: 8, 7, 6, 5, 4 differ by 2 (the best split, 8+7 and 6+5+4, is beyond the method).
    lengths = [8, 7, 6, 5, 4]
    assert sorted(sums(karmarkar_karp(lengths, 2, equal_size=False), lengths)) == [14, 16]


def test_differencing_beats_greedy_on_many_samples() -> None:
    lengths = np.random.default_rng(0).integers(100, 16_000, 512).tolist()

    def spread(parts: list[list[int]]) -> int:
        return max(sums(parts, lengths)) - min(sums(parts, lengths))

    for equal_size in (True, False):
        assert spread(karmarkar_karp(lengths, 8, equal_size)) < 10 < spread(greedy_partition(lengths, 8, equal_size))


@settings(max_examples=30, deadline=None)
@given(lengths=LENGTHS, k=st.integers(1, 6), equal_size=st.booleans())
def test_greedy_keeps_every_sample_and_counts_alike(lengths: list[int], k: int, equal_size: bool) -> None:
    parts = greedy_partition(lengths, k, equal_size)
    assert everything(parts) == list(range(len(lengths)))
    assert not equal_size or max(map(len, parts)) <= -(-len(lengths) // k)


def test_workloads_do_not_overflow_32_bits() -> None:
    assert calculate_workload(torch.tensor([40000, 10], dtype=torch.int32)).tolist() == [2583040000, 245860]


def test_uneven_counts_are_split_three_three_two_two() -> None:
    assert [len(part) for part in get_seqlen_balanced_partitions([5] * 10, 4, equal_size=True)] == [3, 3, 2, 2]
    assert [len(part) for part in get_seqlen_balanced_partitions([5] * 9, 4, equal_size=True)] == [3, 2, 2, 2]
    assert [len(part) for part in get_seqlen_balanced_partitions([0] * 8, 4, equal_size=True)] == [2, 2, 2, 2]


def test_fewer_samples_than_parts_is_a_clear_error() -> None:
    with pytest.raises(DataError, match="3 samples for 4 parts"):
        get_seqlen_balanced_partitions([1, 2, 3], 4, equal_size=True)


def test_zero_lengths_and_equal_lengths_leave_no_part_empty() -> None:
    assert all(get_seqlen_balanced_partitions([0, 0, 0, 0, 9], 4, equal_size=False))
    assert [len(p) for p in get_seqlen_balanced_partitions([7] * 8, 4, equal_size=False)] == [2, 2, 2, 2]


@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, budget=st.integers(200, 600), at_least=st.integers(1, 5))
def test_no_part_exceeds_the_budget(lengths: list[int], budget: int, at_least: int) -> None:
    at_least = min(at_least, len(lengths))
    parts = partition_by_budget(lengths, budget, at_least)
    assert everything(parts) == list(range(len(lengths))) and all(parts)
    assert max(sums(parts, lengths)) <= budget and len(parts) >= at_least


def test_packing_takes_over_where_balancing_would_break_the_budget() -> None:
    lengths = [6, 6, 5, 5, 4, 4] * 3
    parts = partition_by_budget(lengths, 10)
    assert len(parts) == 9 and max(sums(parts, lengths)) == 10


def test_a_sample_above_the_budget_is_named() -> None:
    with pytest.raises(DataError, match=r"sample 1.*got 900.*at most 500 tokens"):
        partition_by_budget([100, 900], 500)


def test_the_same_lengths_give_the_same_split() -> None:
    lengths = np.random.default_rng(1).integers(1, 9, 200).tolist()
    for split in (lambda: get_seqlen_balanced_partitions(lengths, 7, False), lambda: partition_by_budget(lengths, 50)):
        assert split() == split()


def test_trajectories_of_a_prompt_stay_together() -> None:
    uids = ["a", "b", "a", "c", "d", "b", "c", "d"]
    parts = get_group_balanced_partitions([9, 1, 9, 5, 5, 1, 5, 5], uids, 2)
    assert everything(parts) == list(range(8))
    assert sorted({frozenset(uids[item] for item in part) for part in parts}, key=sorted) == [{"a", "b"}, {"c", "d"}]


def test_the_metrics_compare_equal_runs_with_the_balanced_parts() -> None:
    found = log_seqlen_unbalance([10, 10, 1, 1], [[0, 2], [1, 3]], "global_seqlen")
    assert found == {
        "global_seqlen/min": 2,
        "global_seqlen/max": 20,
        "global_seqlen/minmax_diff": 18,
        "global_seqlen/balanced_min": 11,
        "global_seqlen/balanced_max": 11,
        "global_seqlen/mean": 11,
    }


@given(st.permutations(range(8)))
def test_the_reverse_index_undoes_the_order(order: list[int]) -> None:
    assert [order[i] for i in get_reverse_idx(order)] == list(range(8))


def test_rounding_up() -> None:
    assert [roundup_divisible(n, 4) for n in (0, 1, 4, 5)] == [0, 4, 4, 8]
