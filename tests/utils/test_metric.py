# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A metric carries its own reduction; a plain list reduces by a whole word of its name."""

import pickle

import numpy as np
import pytest
import torch

from verl.errors import ConfigError, DataError
from verl.utils.metric import AggregationType, Metric, merge_metrics, reduce_metrics


@pytest.mark.parametrize(("kind", "value"), [("mean", 2.0), ("sum", 6.0), ("min", 1.0), ("max", 3.0), ("count", 6.0)])
def test_each_kind_reduces_as_it_says(kind: str, value: float) -> None:
    assert Metric(kind, [1, 2.0, np.float32(3)]).aggregate() == value
    assert Metric(AggregationType(kind), torch.tensor(2.5)).aggregate() == 2.5
    assert Metric(kind).aggregate() == 0.0


def test_a_weighted_mean_counts_its_weights() -> None:
    metric = Metric("mean")
    metric.append(0, weight=1)
    metric.append(4, weight=3)
    assert metric.aggregate() == 3.0
    empty = Metric("mean")
    empty.append(5.0, weight=0)
    assert empty.aggregate() == 0.0


def test_a_normalised_loss_adds_up_over_micro_batches_and_averages_over_ranks() -> None:
    loss = [Metric("sum", [0.1, 0.1]), Metric("sum", [0.1, 0.1])]
    assert [rank.aggregate() for rank in loss] == pytest.approx([0.2, 0.2])
    assert Metric.aggregate_dp(loss) == pytest.approx(0.2)
    assert Metric.aggregate_dp([Metric("mean", [0.1, 0.3]), Metric("mean", [0.1, 0.3])]) == pytest.approx(0.2)
    assert Metric.aggregate_dp([Metric("count", [1, 2]), Metric("count", [3])]) == 6
    assert Metric.aggregate_dp([Metric("max", [1, 5]), Metric("max", [3])]) == 5
    assert Metric.aggregate_dp([Metric("min", [1, 5]), Metric("min", [3])]) == 1


def test_two_kinds_do_not_mix() -> None:
    with pytest.raises(DataError, match="two kinds"):
        Metric("sum", 1.0).extend(Metric("mean", 1.0))
    with pytest.raises(DataError, match="ranks disagree"):
        Metric.aggregate_dp([Metric("sum", 1.0), Metric("mean", 1.0)])
    with pytest.raises(ConfigError, match=r"mean \| sum"):
        Metric("median")


def test_metrics_are_made_from_dictionaries_appended_and_sent() -> None:
    metrics = Metric.from_dict({"a": 1, "b": 2.5}, "sum")
    metrics["a"].append(Metric("sum", [2, 3]))
    metrics["b"].append(0.5)
    assert (metrics["a"].aggregate(), metrics["b"].aggregate()) == (6.0, 3.0)
    assert pickle.loads(pickle.dumps(metrics["a"])).aggregate() == 6.0
    assert metrics["a"].init_list().values == [] and "sum" in repr(metrics["a"])


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("x/terminated_ratio", [0, 1], 0.5),
        ("x/softmax_temp", [1, 3], 2.0),
        ("critic/score/max", [1, 3], 3.0),
        ("critic/score/min", [1, 3], 1.0),
        ("rollout_corr/log_ppl_diff_max", [1, 3], 3.0),
        ("actor/consumed", [1, 3], 2.0),
        ("Response_Length/Max", [1, 3], 3.0),
    ],
)
def test_a_list_reduces_by_a_whole_word_of_its_name(name: str, values: list, expected: float) -> None:
    assert reduce_metrics({name: values}) == {name: expected}


def test_all_sorts_of_numbers_are_reduced_and_nothing_gives_nan() -> None:
    given = {
        "a": [torch.tensor(1.0), np.int64(3), True],
        "b": [],
        "c": 2,
        "d": np.array([1.0, 2.0]),
        "e": Metric("sum", [1, 1]),
    }
    assert reduce_metrics(given) == {"a": pytest.approx(5 / 3), "b": 0.0, "c": 2.0, "d": 1.5, "e": 2.0}
    assert isinstance(given["a"], list), "the caller's dictionary stays as it was"
    with pytest.raises(DataError, match="actor/note"):
        reduce_metrics({"actor/note": ["text"]})


def test_merging_keeps_what_every_part_has_measured() -> None:
    merged = merge_metrics([{"loss": Metric("sum", 0.1), "lr": 1.0}, {"loss": Metric("sum", 0.3), "kl": [2.0, 4.0]}])
    assert reduce_metrics(merged) == {"loss": pytest.approx(0.4), "lr": 1.0, "kl": 3.0}
