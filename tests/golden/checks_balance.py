# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Splitting of batches, reading of settings and the correction put on a batch, against references written out.

A check takes the module as an argument, as those in checks.py do.
"""

import itertools
import math
from enum import Enum
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import torch
from tensordict import TensorDict

from verl.protocol import DataProto
from verl.registry import Registry


def refused(call, *words):
    try:
        call()
    except Exception as error:
        assert all(word in str(error) for word in words), (words, str(error))
        return
    raise AssertionError("nothing was refused")


# --- batch_balance -------------------------------------------------------------------------------------------------


def differencing(lengths, k, equal_size):
    """Karmarkar and Karp's method with plain lists: k (sum, items) pairs a state, the widest two merged each time."""
    order = sorted(range(len(lengths)), key=lambda item: -lengths[item])
    runs = [order[start : start + k] for start in range(0, len(order), k)] if equal_size else [[item] for item in order]
    states = [[(lengths[item], [item]) for item in run] + [(0, [])] * (k - len(run)) for run in runs]
    waiting = [(state[0][0] - state[-1][0], -number, state) for number, state in enumerate(states)]
    for number in range(len(waiting), 2 * len(waiting) - 1):
        (_, _, a), (_, _, b) = sorted(waiting, key=lambda entry: entry[:2])[: -3 if len(waiting) > 2 else None : -1]
        waiting = [entry for entry in waiting if entry[2] is not a and entry[2] is not b]
        merged = [(x + y, left + right) for (x, left), (y, right) in zip(a, reversed(b), strict=True)]
        merged.sort(key=lambda part: -part[0])
        waiting.append((merged[0][0] - merged[-1][0], -number, merged))
    return [items for _, items in waiting[0][2]]


def sums(parts, lengths):
    return [sum(lengths[item] for item in part) for part in parts]


def cases():
    rng = np.random.default_rng(0)
    for number in (1, 2, 5, 8, 13, 24):
        for high in (3, 50, 5000):
            lengths = rng.integers(0, high, number).tolist()
            for k in {1, 2, 3, 4, number}:
                if k <= number:
                    yield lengths, k


def complete(parts, number):
    assert sorted(itertools.chain.from_iterable(parts)) == list(range(number)), parts


def check_differencing(m):
    assert m.calculate_workload([3, 40000]).tolist() == [24576 * 3 + 9, 24576 * 40000 + 40000**2]
    assert m.calculate_workload(torch.tensor([40000], dtype=torch.int32)).dtype == torch.int64
    for (lengths, k), equal_size in itertools.product(cases(), (False, True)):
        parts = m.karmarkar_karp(lengths, k, equal_size)
        complete(parts, len(lengths))
        assert len(parts) == k
        want = differencing(lengths, k, equal_size)
        assert sorted(sums(parts, lengths)) == sorted(sums(want, lengths)), (lengths, k, equal_size)
        if equal_size:
            counts = [len(lengths) // k + (part < len(lengths) % k) for part in range(k)]
            assert [len(part) for part in parts] == counts
        found = m.get_seqlen_balanced_partitions(lengths, k, equal_size)
        complete(found, len(lengths))
        assert all(found) and all(part == sorted(part) for part in found)
        if all(parts):
            assert found == [sorted(part) for part in parts]
    assert m.karmarkar_karp([], 3, False) == [[], [], []] == m.karmarkar_karp([], 3, True)
    # A part that is empty takes the lightest of the fullest, the first of those.
    assert m._without_empty([[0, 3, 1], [2], []], [5, 2, 9, 2]) == [[0, 3], [2], [1]]
    assert m._without_empty([[0, 1], [2, 3, 4], []], [1, 1, 8, 6, 7]) == [[0, 1], [2, 4], [3]]
    refused(lambda: m.get_seqlen_balanced_partitions([1, 2], 3, False), "2 samples for 3 parts")
    refused(lambda: m.get_seqlen_balanced_partitions([1, 2], 0, False), "for 0 parts")
    assert m.get_seqlen_balanced_partitions([4, 5], 2, False) in ([[1], [0]], [[0], [1]])


def check_longest_first(m):
    for (lengths, k), equal_size in itertools.product(cases(), (False, True)):
        parts = [[] for _ in range(k)]
        room = math.ceil(len(lengths) / k) if equal_size else len(lengths)
        for item in sorted(range(len(lengths)), key=lambda item: -lengths[item]):
            open_parts = [part for part in range(k) if len(parts[part]) < room]
            lightest = min(open_parts, key=lambda part: (sum(lengths[i] for i in parts[part]), part))
            parts[lightest].append(item)
        assert m.greedy_partition(lengths, k, equal_size) == parts, (lengths, k, equal_size)


def check_groups_stay_together(m):
    uids = ["a", "b", "a", "c", "d", "b", "c", "d", "e"]
    lengths = [9, 1, 9, 5, 6, 1, 5, 5, 2]
    parts = m.get_group_balanced_partitions(lengths, uids, 2)
    totals = [18, 2, 10, 11, 2]
    want = m.get_seqlen_balanced_partitions(totals, 2, False)
    members = [[0, 2], [1, 5], [3, 6], [4, 7], [8]]
    assert parts == [[item for group in part for item in members[group]] for part in want]
    # As many groups in each part where that is possible.
    assert sorted(map(len, m.get_group_balanced_partitions([9, 1, 1, 1], list("abcd"), 2))) == [2, 2]
    assert sorted(map(len, m.get_group_balanced_partitions([9, 1, 1], list("abc"), 2))) == [1, 2]


def check_budget(m):
    rng = np.random.default_rng(1)
    for number, budget, at_least in itertools.product((1, 4, 9, 20), (20, 30, 95), (None, 1, 3)):
        lengths = rng.integers(1, 20, number).tolist()
        if (at_least or 1) > number:
            continue
        parts = m.partition_by_budget(lengths, budget, at_least)
        complete(parts, number)
        assert all(parts) and max(sums(parts, lengths)) <= budget and all(part == sorted(part) for part in parts)
        lower = max(at_least or 1, math.ceil(Fraction(sum(lengths), budget)))
        # No number between the bound and what was found is reached by balancing.
        for k in range(lower, len(parts)):
            for weights in ([24576 * n + n * n for n in lengths], lengths):
                assert max(sums(m.get_seqlen_balanced_partitions(weights, k, False), lengths)) > budget
        assert lower <= len(parts) <= max(lower, len(best_fit(lengths, budget)))
        assert m._best_fit(lengths, budget) == best_fit(lengths, budget)
    # By cost before by tokens: 4 against 3 + 1 in tokens, while a long one costs more than two short ones.
    lengths = [30000, 10000, 10000, 10000]
    assert m.partition_by_budget(lengths, 60000, 2) == m.get_seqlen_balanced_partitions(
        [24576 * n + n * n for n in lengths], 2, False
    )
    assert sorted(map(len, m.partition_by_budget([9, 4, 4, 1], 9))) == [1, 3]
    assert m.partition_by_budget([], 10) == []
    # Only packing keeps this budget.
    lengths = [6, 6, 5, 5, 4, 4] * 3
    packed = m.partition_by_budget(lengths, 10)
    assert sums(packed, lengths) == [10] * 9 and all(part == sorted(part) for part in packed)
    # Not one part more, although balancing would reach it.
    assert len(m.partition_by_budget([3, 4, 2, 10, 7, 7, 4, 6], 11)) == 4
    assert m.partition_by_budget([5, 5], 10) == [[0, 1]]
    refused(lambda: m.partition_by_budget([3, 11, 2], 10), "sample 1", "11", "at most 10")
    assert m.partition_by_budget([3, 10, 2], 10) in ([[1], [0, 2]], [[0, 2], [1]])
    assert m._split_to([[0, 1, 2, 3, 4], [5, 6]], 4) in ([[0], [5, 6], [2, 3, 4], [1]], [[0, 1], [5, 6], [2], [3, 4]])
    assert m._split_to([[0, 1], [2]], 3) == [[0], [2], [1]]
    assert m._split_to([[0, 1]], 1) == [[0, 1]]
    refused(lambda: m._split_to([[0], [1]], 3), "2 samples for 3 parts")


def best_fit(lengths, budget):
    """Each into the fullest part that still has room for it; of parts alike the one opened first."""
    parts = []
    for item in sorted(range(len(lengths)), key=lambda item: -lengths[item]):
        fitting = [part for part in parts if sum(lengths[i] for i in part) + lengths[item] <= budget]
        if fitting:
            min(fitting, key=lambda part: budget - sum(lengths[i] for i in part)).append(item)
        else:
            parts.append([item])
    return parts


def check_balance_numbers(m):
    found = m.log_seqlen_unbalance([10, 7, 1, 2, 5], [[0, 2], [1, 3, 4]], "x")
    # Equal runs of five are three and two.
    assert found == {
        "x/min": 7,
        "x/max": 18,
        "x/minmax_diff": 11,
        "x/balanced_min": 11,
        "x/balanced_max": 14,
        "x/mean": 12.5,
    }
    assert [m.ceildiv(a, 4) for a in (0, 1, 4, 5, -1)] == [0, 1, 1, 2, 0]
    assert [m.roundup_divisible(a, 4) for a in (0, 1, 4, 5)] == [0, 4, 4, 8]
    assert m.get_reverse_idx([2, 0, 3, 1]) == [1, 3, 0, 2]


# --- micro_batches -------------------------------------------------------------------------------------------------


def batch_of(lengths):
    mask = (torch.arange(max(lengths) + 2) < torch.tensor(lengths).unsqueeze(-1)).long()
    return TensorDict({"attention_mask": mask, "row": torch.arange(len(lengths))}, batch_size=len(lengths))


def tokens(micro):
    return int(micro["attention_mask"].sum())


def check_micro_batches(m):
    lengths = [5, 1, 9, 3, 3, 7, 2, 8]
    micros, rows = m.rearrange_micro_batches(batch_of(lengths), 12)
    complete(rows, 8)
    assert [micro["row"].tolist() for micro in micros] == rows and max(map(tokens, micros)) <= 12 and len(rows) == 4
    assert m.effective_lengths(batch_of(lengths)) == lengths
    nested = torch.nested.nested_tensor([torch.ones(n) for n in (3, 5, 4)], layout=torch.jagged)
    assert m.effective_lengths(TensorDict({"input_ids": nested}, batch_size=3)) == [3, 5, 4]
    both = TensorDict({"input_ids": nested, "attention_mask": nested}, batch_size=3)
    assert m.effective_lengths(both) == [3, 5, 4]
    refused(lambda: m.effective_lengths(TensorDict({"input_ids": torch.ones(2, 3)}, batch_size=2)), "attention_mask")
    even = batch_of([4] * 12)
    options = [({}, 3), ({"num_batches_divided_by": 4}, 4), ({"min_num_micro_batch": 6}, 6)]
    options += [({"num_batches_divided_by": 3, "min_num_micro_batch": 5}, 6)]
    for option, number in options:
        assert len(m.rearrange_micro_batches(even, 16, **option)[0]) == number
    assert len(m.rearrange_micro_batches(batch_of([4, 4]), 4, num_batches_divided_by=2)[0]) == 2
    refused(lambda: m.rearrange_micro_batches(batch_of([4, 4]), 16, num_batches_divided_by=4), "got 2", "at least 4")
    _, rows = m.rearrange_micro_batches(batch_of([9, 1, 5, 5, 2, 8]), 20, force_group_size=2)
    complete(rows, 6)
    assert sorted(rows) in ([[0, 1], [2, 3, 4, 5]], [[0, 1, 2, 3], [4, 5]], [[0, 1, 4, 5], [2, 3]])
    refused(lambda: m.rearrange_micro_batches(batch_of([1, 2]), 20, force_group_size=3), "multiple of 3")
    # The dearest in the middle: each second one to the left of it.
    ordered, _ = m.rearrange_micro_batches(batch_of([10, 40, 20, 30, 35]), 40, min_num_micro_batch=5)
    assert [tokens(micro) for micro in ordered] == [10, 30, 40, 35, 20]
    _, rows = m.rearrange_micro_batches(batch_of([7, 7, 7]), 7)
    assert rows == [[2], [0], [1]]
    _, rows = m.rearrange_micro_batches(batch_of([10, 40, 20]), 40, use_dynamic_bsz_balance=False)
    complete(rows, 3)


def check_dynamic_batch(m):
    lengths = [5, 1, 9, 3]
    data = DataProto(batch=batch_of(lengths), non_tensor_batch={"name": np.array(list("abcd"), dtype=object)})
    parts, rows = m.prepare_dynamic_batch(data, 9, num_batches_divided_by=3, min_num_micro_batch=2)
    complete(rows, 4)
    assert len(parts) == 3
    assert [part.non_tensor_batch["name"].tolist() for part in parts] == [["abcd"[i] for i in row] for row in rows]
    joined = torch.cat([part.batch["row"] for part in parts])
    assert m.restore_dynamic_batch(joined, rows).tolist() == [0, 1, 2, 3]
    assert m.split_evenly(9, 4) == [[0, 1, 2], [3, 4], [5, 6], [7, 8]]
    assert m.split_evenly(2, 3) == [[0], [1], []]


# --- settings, registry --------------------------------------------------------------------------------------------


def check_settings(m):
    for config in ({"a": {"b": 2, "c": None}}, SimpleNamespace(a=SimpleNamespace(b=2, c=None)), {"a": Dotted(b=2)}):
        assert m.setting(config, "a.b") == 2 and m.setting(config, "a.c") is None
        assert m.setting(config, "a.c", 5) == 5 and m.setting(config, "a.d.e", 6) == 6
    assert m.setting(None, "a", 1) == 1 and m.setting({"a": 0}, "a", 3) == 0 and m.setting(None, "a") is None
    for base in ({"a": 1, "b": 2}, SimpleNamespace(a=1, b=2)):
        over = m.Overlay(base, b=3, c=4)
        assert dict(over) == {"a": 1, "b": 3, "c": 4} and len(over) == 3 and (over.a, over.b, over["c"]) == (1, 3, 4)
        assert list(over) == ["a", "b", "c"]
        for call in (lambda over=over: over["d"], lambda over=over: over.d):
            refused(call, "d")
        assert not hasattr(over, "__deepcopy__") and not hasattr(over, "d") and "d" not in over
        assert m.setting(over, "b") == 3 and m.setting(over, "d", 7) == 7
    # Dunder names are asked for by copy and pickle before there is anything to look into.
    assert not hasattr(m.Overlay({"__secret__": 1}), "__secret__")


class Dotted:
    def __init__(self, **entries):
        self.entries = entries

    def get(self, name):
        return self.entries.get(name)


def check_advantage_names(m):
    class Name(Enum):
        MINE = "mine"

    assert m.AdvantageEstimator("gae") is m.AdvantageEstimator.GAE
    real = m.ADV_ESTIMATOR_REGISTRY
    m.ADV_ESTIMATOR_REGISTRY = Registry("advantage estimator", "algorithm.adv_estimator")
    try:
        for name in ("plain", Name.MINE, m.AdvantageEstimator.RLOO):
            function = m.register_adv_est(name)(lambda: None)
            assert m.get_adv_estimator_fn(name) is function
        assert set(m.ADV_ESTIMATOR_REGISTRY) == {"plain", "mine", "rloo"}
        assert m.get_adv_estimator_fn("mine") is m.get_adv_estimator_fn(Name.MINE)
        refused(lambda: m.get_adv_estimator_fn("plane"), "plain")
    finally:
        m.ADV_ESTIMATOR_REGISTRY = real


# --- rollout_correction.apply --------------------------------------------------------------------------------------


def correction_batch():
    rollout = torch.tensor([[-1.0, -1.0, -1.0], [-0.5, -0.5, -9.0]])
    shift = torch.tensor([[0.1, -0.1, 0.2], [1.5, 0.0, 9.0]])
    tensors = {"rollout_log_probs": rollout, "old_log_probs": rollout + shift}
    return DataProto.from_dict(tensors | {"response_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])})


def check_apply(m):
    config = {"rollout_is": "token", "rollout_rs": "seq_max_k2", "rollout_rs_threshold": 1.0}
    data, metrics = m.compute_rollout_correction_and_add_to_batch(correction_batch(), config)
    # The weights are those of the mask before rejection.
    want = [[math.exp(0.1), math.exp(-0.1), math.exp(0.2)], [2.0, 1.0, 0.0]]
    torch.testing.assert_close(data.batch["rollout_is_weights"], torch.tensor(want))
    assert data.batch["response_mask"].tolist() == [[1, 1, 1], [0, 0, 0]]
    np.testing.assert_allclose(metrics["rollout_corr/kl"], -(0.1 - 0.1 + 0.2 + 1.5) / 5, rtol=1e-6)
    assert metrics["rollout_corr/rollout_rs_seq_masked_fraction"] == 0.5
    np.testing.assert_allclose(metrics["rollout_corr/rollout_is_ratio_fraction_high"], 0.2)
    data, metrics = m.compute_rollout_correction_and_add_to_batch(correction_batch(), {"rollout_is": None})
    assert data.batch["response_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert "rollout_is_weights" not in data.batch and "rollout_corr/k3_kl" in metrics
    leaf = torch.zeros(2, 3, requires_grad=True)
    tensors = correction_batch().batch
    spec = m.read_correction({"rollout_is": "token"})
    for pair in ((leaf, tensors["rollout_log_probs"]), (tensors["old_log_probs"], leaf)):
        assert not m.correct(*pair, tensors["response_mask"], spec).weights.requires_grad
    lacking = correction_batch().select(["old_log_probs", "response_mask"])
    refused(lambda: m.compute_rollout_correction_and_add_to_batch(lacking, {}), "rollout_log_probs", "calculate")
    lacking = correction_batch().select(["rollout_log_probs", "response_mask"])
    refused(lambda: m.compute_rollout_correction_and_add_to_batch(lacking, {}), "old_log_probs")
    try:
        m.compute_rollout_correction_and_add_to_batch(lacking, {})
    except Exception as error:
        assert "calculate_log_probs" not in str(error)


def check_bypass(m):
    data = correction_batch()
    m.apply_bypass_mode(data)
    assert torch.equal(data.batch["old_log_probs"], data.batch["rollout_log_probs"])
    defaults = {"rollout_is": None, "rollout_is_threshold": 2.0, "rollout_is_batch_normalize": False}
    defaults |= {"rollout_rs": None, "rollout_rs_threshold": None, "bypass_mode": True, "loss_type": "ppo_clip"}
    assert data.meta_info["rollout_correction"] == defaults
    data = correction_batch()
    m.apply_bypass_mode(data, {"rollout_is": "token", "loss_type": "reinforce"}, {"loss_mode": "bypass_mode"})
    assert data.meta_info["rollout_correction"] == defaults | {"rollout_is": "token", "loss_type": "reinforce"}
    m.apply_bypass_mode(correction_batch(), {"rollout_is": "token"}, {"loss_mode": "vanilla"})
    m.apply_bypass_mode(correction_batch(), {}, {"loss_mode": "gspo"})
    for config in ({"rollout_is": "token"}, {"rollout_rs": "token_k2", "rollout_rs_threshold": 1}):
        m.apply_bypass_mode(correction_batch(), config)
        refused(lambda config=config: m.apply_bypass_mode(correction_batch(), config, {"loss_mode": "gspo"}), "gspo")
    lacking = correction_batch().select(["response_mask"])
    refused(lambda: m.apply_bypass_mode(lacking), "rollout_log_probs")


A = "verl.algorithms."
BALANCE_CHECKS = {
    A + "batch_balance": [
        check_differencing,
        check_longest_first,
        check_groups_stay_together,
        check_budget,
        check_balance_numbers,
    ],
    A + "micro_batches": [check_micro_batches, check_dynamic_batch],
    A + "settings": [check_settings],
    A + "advantages.registry": [check_advantage_names],
    A + "rollout_correction.apply": [check_apply, check_bypass],
}
