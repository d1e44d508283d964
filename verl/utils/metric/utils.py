# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`Metric`: values with a declared reduction, over micro-batches and over ranks."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from verl.errors import ConfigError, DataError

Numeric = Any
"""int, float, bool, NumPy scalar or tensor of one element."""


class AggregationType(Enum):
    """How the values of a metric become one."""

    MEAN = "mean"
    """Weighted mean, over micro-batches and ranks alike."""
    SUM = "sum"
    """Sum over micro-batches, mean over ranks: for losses that are already divided by the global count."""
    MIN = "min"
    MAX = "max"
    COUNT = "count"
    """Sum over micro-batches and ranks: for counts."""


class Metric:
    """Values and their reduction; a value may carry a weight (its number of tokens), 1 if not given."""

    def __init__(self, aggregation: str | AggregationType, value: Numeric | list[Numeric] | None = None) -> None:
        self.aggregation = _aggregation(aggregation)
        self.values: list[float] = []
        self.weights: list[float] = []
        if value is not None:
            self.extend(value if isinstance(value, list) else [value])

    def append(self, value: "Numeric | Metric", weight: float = 1.0) -> None:
        """Add one value, or all values of another metric of the same kind."""
        if isinstance(value, Metric):
            self.extend(value)
            return
        self.values.append(float(value))
        self.weights.append(float(weight))

    def extend(self, values: "Metric | list[Numeric]") -> None:
        """Add several values."""
        if isinstance(values, Metric):
            if values.aggregation is not self.aggregation:
                raise DataError("metrics of two kinds do not mix", got=values.aggregation, expected=self.aggregation)
            self.values += values.values
            self.weights += values.weights
            return
        for value in values:
            self.append(value)

    def aggregate(self) -> float:
        """The one number of this process; 0 where there is no value."""
        if not self.values:
            return 0.0
        if self.aggregation is AggregationType.MAX:
            return max(self.values)
        if self.aggregation is AggregationType.MIN:
            return min(self.values)
        if self.aggregation is AggregationType.MEAN:
            return _weighted_mean(self.values, self.weights)
        return sum(self.values)

    @classmethod
    def aggregate_dp(cls, metric_lists: "list[Metric]") -> float:
        """The one number of all ranks, from one metric of each."""
        kinds = {metric.aggregation for metric in metric_lists}
        if len(kinds) != 1:
            raise DataError("ranks disagree on how to reduce a metric", got=[kind.value for kind in kinds])
        if kinds == {AggregationType.SUM}:
            totals = [metric.aggregate() for metric in metric_lists]
            return sum(totals) / len(totals)
        joined = metric_lists[0].init_list()
        for metric in metric_lists:
            joined.extend(metric)
        return joined.aggregate()

    @classmethod
    def from_dict(cls, data: Mapping[str, Numeric], aggregation: str | AggregationType) -> "dict[str, Metric]":
        """One metric for each entry, all of one kind."""
        return {name: cls(aggregation, value) for name, value in data.items()}

    def init_list(self) -> "Metric":
        """An empty metric of the same kind."""
        return Metric(self.aggregation)

    def __repr__(self) -> str:
        return f"Metric({self.aggregation.value}, {self.values})"


def reduce_metrics(metrics: Mapping[str, "Metric | Sequence[Numeric] | Numeric"]) -> dict[str, float]:
    """One number for each name.

    A `Metric` reduces itself. A plain list reduces by its name: `max` or `min` as one of its `words` takes the
    largest or smallest, every other name the mean; an empty list gives 0.
    """
    return {name: _declared(name, value).aggregate() for name, value in metrics.items()}


def merge_metrics(parts: Iterable[Mapping[str, "Metric | Sequence[Numeric] | Numeric"]]) -> "dict[str, Metric]":
    """All values of several dictionaries (micro-batches, mini-batches) under their names, nothing lost."""
    merged: dict[str, Metric] = {}
    for part in parts:
        for name, value in part.items():
            metric = _declared(name, value)
            merged.setdefault(name, metric.init_list()).extend(metric)
    return merged


def words(name: str) -> list[str]:
    """The words of a metric's name in lower case: what stands between `/ _ @ -` and the like."""
    return re.split(r"[^a-z0-9]+", name.lower())


def _declared(name: str, value: Any) -> Metric:
    if isinstance(value, Metric):
        return value
    found = words(name)
    kind = AggregationType.MAX if "max" in found else AggregationType.MIN if "min" in found else AggregationType.MEAN
    try:
        return Metric(kind, list(value) if _is_list(value) else value)
    except (TypeError, ValueError) as error:
        raise DataError("a metric must be a number or a list of numbers", where=name, got=value) from error


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or getattr(value, "ndim", 0) > 0


def _aggregation(kind: str | AggregationType) -> AggregationType:
    try:
        return AggregationType(kind)
    except ValueError as error:
        known = " | ".join(item.value for item in AggregationType)
        raise ConfigError("unknown aggregation of a metric", got=kind, expected=known) from error


def _weighted_mean(values: list[float], weights: list[float]) -> float:
    total = sum(weights)
    if total == 0:
        return 0.0
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total
