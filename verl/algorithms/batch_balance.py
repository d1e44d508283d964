# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Split samples over ranks or micro-batches so that the parts cost alike.

The largest differencing method: Karmarkar and Karp 1982. Every function is deterministic, so that ranks which see the
same lengths make the same split.
"""

import bisect
import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from verl.errors import DataError

Partitions = list[list[int]]


def calculate_workload(seqlen_list: Any) -> torch.Tensor:
    """Relative cost of a sequence of each length, int64: `24576 n + n^2`, linear layers and attention of a 7B model."""
    lengths = torch.as_tensor(seqlen_list).to(torch.int64)
    return 24576 * lengths + lengths**2


class _State(NamedTuple):
    """A partial solution: the sums of its parts, largest first, and how it came about; parts beyond them are empty."""

    sums: np.ndarray
    source: "_Merge | np.ndarray"
    """A merge, or the item in each part (-1 for none)."""

    def priority(self, k: int) -> int:
        """Minus the spread of the sums; the widest spread is merged first."""
        return int((self.sums[-1] if len(self.sums) == k else 0) - self.sums[0])


class _Merge(NamedTuple):
    left: _State
    right: _State
    order: np.ndarray
    """Part of the result -> part of the left, which met the right in reverse."""


def karmarkar_karp(seqlen_list: Sequence[int], k_partitions: int, equal_size: bool) -> Partitions:
    """Indices in k parts with sums as equal as the differencing method gets them.

    With `equal_size` the parts also differ by at most one item, the larger ones first.
    """
    lengths = np.asarray(seqlen_list, dtype=np.int64)
    if not len(lengths):
        return [[] for _ in range(k_partitions)]
    states = _equal_states(lengths, k_partitions) if equal_size else _single_states(lengths)
    # The running number breaks ties the same way everywhere.
    heap = [(state.priority(k_partitions), number, state) for number, state in enumerate(states)]
    heapq.heapify(heap)
    number = len(heap)
    while len(heap) > 1:
        merged = _merge(heapq.heappop(heap)[2], heapq.heappop(heap)[2], k_partitions)
        heapq.heappush(heap, (merged.priority(k_partitions), number, merged))
        number += 1
    parts = _items(heap[0][2], k_partitions)
    return sorted(parts, key=lambda part: -len(part)) if equal_size else parts


def _single_states(lengths: np.ndarray) -> list[_State]:
    return [_State(lengths[item : item + 1], np.array([item])) for item in range(len(lengths))]


def _equal_states(lengths: np.ndarray, k: int) -> list[_State]:
    """Runs of k similar lengths, one for each part; the last run is filled up with nothing."""
    order = np.argsort(-lengths, kind="stable")
    filled = np.concatenate([order, np.full(-len(order) % k, -1)])
    return [_State(np.where(run < 0, 0, lengths[run]), run) for run in filled.reshape(-1, k)]


def _merge(a: _State, b: _State, k: int) -> _State:
    """The heaviest parts of one meet the lightest of the other; while there is room, those are empty ones."""
    size = min(k, len(a.sums) + len(b.sums))
    sums = np.zeros(size, np.int64)
    sums[: len(a.sums)] += a.sums
    sums[::-1][: len(b.sums)] += b.sums
    order = np.argsort(-sums, kind="stable")
    return _State(sums[order], _Merge(a, b, order))


def _items(root: _State, k: int) -> Partitions:
    parts: Partitions = [[] for _ in range(k)]
    stack = [(root, np.arange(len(root.sums)))]
    while stack:
        (sums, source), part_of_slot = stack.pop()
        if isinstance(source, _Merge):
            unsorted = np.empty(len(sums), np.int64)
            unsorted[source.order] = part_of_slot
            stack.append((source.left, unsorted[: len(source.left.sums)]))
            stack.append((source.right, unsorted[::-1][: len(source.right.sums)]))
            continue
        for slot in np.flatnonzero(source >= 0):
            parts[part_of_slot[slot]].append(int(source[slot]))
    return parts


def greedy_partition(seqlen_list: Sequence[int], k_partitions: int, equal_size: bool) -> Partitions:
    """Longest first, each into the lightest part that has room (Graham 1969); coarser and simpler than differencing."""
    lengths = np.asarray(seqlen_list, dtype=np.int64)
    room = -(-len(lengths) // k_partitions) if equal_size else len(lengths)
    parts: Partitions = [[] for _ in range(k_partitions)]
    heap = [(0, part) for part in range(k_partitions)]
    for item in np.argsort(-lengths, kind="stable"):
        total, part = heapq.heappop(heap)
        parts[part].append(int(item))
        if len(parts[part]) < room:
            heapq.heappush(heap, (total + int(lengths[item]), part))
    return parts


def get_seqlen_balanced_partitions(seqlen_list: Sequence[int], k_partitions: int, equal_size: bool) -> Partitions:
    """k parts of nearly equal sum, none empty, each sorted; with `equal_size` also of nearly equal count.

    9 items in 4 parts of equal size are 3, 2, 2, 2.
    """
    if k_partitions < 1 or len(seqlen_list) < k_partitions:
        raise DataError(
            "each part needs at least one sample", got=f"{len(seqlen_list)} samples for {k_partitions} parts"
        )
    parts = karmarkar_karp(seqlen_list, k_partitions, equal_size)
    return [sorted(part) for part in _without_empty(parts, seqlen_list)]


def _without_empty(parts: Partitions, lengths: Sequence[int]) -> Partitions:
    """Give each empty part (zero-length samples weigh nothing) the lightest item of the part with the most items."""
    for empty in (part for part in parts if not part):
        giver = max(parts, key=len)
        lightest = min(giver, key=lambda item: (lengths[item], item))
        giver.remove(lightest)
        empty.append(lightest)
    return parts


def get_group_balanced_partitions(seqlen_list: Sequence[int], uid_list: Sequence[Any], k_partitions: int) -> Partitions:
    """Like `get_seqlen_balanced_partitions`, but trajectories of one uid stay in one part, in their order."""
    members: dict[Any, list[int]] = {}
    for position, uid in enumerate(uid_list):
        members.setdefault(uid, []).append(position)
    groups = list(members.values())
    totals = [sum(int(seqlen_list[item]) for item in group) for group in groups]
    parts = get_seqlen_balanced_partitions(totals, k_partitions, equal_size=len(groups) % k_partitions == 0)
    return [[item for group in part for item in groups[group]] for part in parts]


def partition_by_budget(lengths: Sequence[int], budget: int, num_parts: int | None = None) -> Partitions:
    """The fewest parts (at least `num_parts`) that balance well and in which no sum exceeds `budget`; none is empty."""
    if not len(lengths):
        return []
    longest = int(np.argmax(lengths))
    if lengths[longest] > budget:
        raise DataError(
            "a sample is longer than the token budget of a micro-batch",
            where=f"sample {longest}",
            got=int(lengths[longest]),
            expected=f"at most {budget} tokens",
            remedy="raise ppo_max_token_len_per_gpu (or log_prob_max_token_len_per_gpu), or shorten the responses",
        )
    fallback = _best_fit(lengths, budget)
    start = max(num_parts or 1, ceildiv(int(sum(lengths)), budget), 1)
    for k in range(start, max(len(fallback), start) + 1):
        # Balanced by cost where that stays within the budget, else by tokens, else packed.
        for weights in (calculate_workload(lengths).tolist(), lengths):
            parts = get_seqlen_balanced_partitions(weights, k, equal_size=False)
            if all(sum(lengths[item] for item in part) <= budget for part in parts):
                return parts
    return [sorted(part) for part in _split_to(fallback, max(start, len(fallback)))]


def _best_fit(lengths: Sequence[int], budget: int) -> Partitions:
    """Longest first, each where it leaves the least room: at most 11/9 of the best number of parts, and one."""
    parts: Partitions = []
    room: list[tuple[int, int]] = []
    for item in np.argsort(-np.asarray(lengths), kind="stable"):
        length = int(lengths[item])
        slot = bisect.bisect_left(room, (length, 0))
        left, part = room.pop(slot) if slot < len(room) else (budget, len(parts))
        if part == len(parts):
            parts.append([])
        parts[part].append(int(item))
        bisect.insort(room, (left - length, part))
    return parts


def _split_to(parts: Partitions, k: int) -> Partitions:
    """Split the parts with the most items until there are k."""
    while len(parts) < k:
        part = max(parts, key=len)
        if len(part) < 2:
            raise DataError("each part needs at least one sample", got=f"{len(parts)} samples for {k} parts")
        half = len(part) // 2
        parts.append(part[half:])
        del part[half:]
    return parts


def log_seqlen_unbalance(seqlen_list: Sequence[int], partitions: Partitions, prefix: str) -> dict[str, float]:
    """Token sums of the parts before (equal runs) and after balancing."""
    before = [int(np.sum(run)) for run in np.array_split(np.asarray(seqlen_list), len(partitions))]
    after = [sum(int(seqlen_list[item]) for item in part) for part in partitions]
    return {
        f"{prefix}/min": min(before),
        f"{prefix}/max": max(before),
        f"{prefix}/minmax_diff": max(before) - min(before),
        f"{prefix}/balanced_min": min(after),
        f"{prefix}/balanced_max": max(after),
        f"{prefix}/mean": sum(after) / len(partitions),
    }


def ceildiv(a: int, b: int) -> int:
    """Quotient rounded up."""
    return -(-a // b)


def roundup_divisible(a: int, b: int) -> int:
    """The smallest multiple of b that is not below a."""
    return ceildiv(a, b) * b


def get_reverse_idx(idx_map: Sequence[int]) -> list[int]:
    """The inverse permutation: `[x[i] for i in idx_map]` is undone by it."""
    reverse = [0] * len(idx_map)
    for position, item in enumerate(idx_map):
        reverse[item] = position
    return reverse
