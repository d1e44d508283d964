# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Statistics of several answers to each validation prompt: mean@N, std@N, best@n, worst@n, maj@n.

best, worst and majority of n are estimated by the bootstrap (Efron 1979): n answers drawn with replacement from the N.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

NUM_BOOTSTRAP = 1000
Statistics = dict[str, dict[str, dict[str, float]]]
"""data source -> variable -> name of the statistic -> value."""


def bootstrap_metric(
    data: Sequence[Any],
    subset_size: int,
    reduce_fns: Sequence[Callable[[Any], float]],
    n_bootstrap: int = NUM_BOOTSTRAP,
    seed: int = 42,
) -> list[tuple[float, float]]:
    """Mean and standard deviation of each function over resampled subsets of `data`."""
    draws = _draws(len(data), subset_size, n_bootstrap, seed)
    items = np.empty(len(data), dtype=object)
    items[:] = list(data)
    found = [[reduce_fn(items[draw].tolist()) for draw in draws] for reduce_fn in reduce_fns]
    return [(float(np.mean(values)), float(np.std(values))) for values in found]


def calc_maj_val(data: Sequence[dict[str, Any]], vote_key: str, val_key: str) -> float:
    """The value of the answer that most votes agree on; a tie goes to the answer seen first."""
    votes: dict[Any, list[float]] = defaultdict(list)
    for answer in data:
        votes[answer[vote_key]].append(answer[val_key])
    return max(votes.values(), key=len)[0]


def process_validation_metrics(
    data_sources: Sequence[str], sample_uids: Sequence[str], infos_dict: Mapping[str, Sequence[Any]], seed: int = 42
) -> Statistics:
    """Statistics of every numeric variable, averaged over prompts; answers belong together by uid, never by text.

    An answer without a value (None or NaN) is left out of its variable; a variable of strings gives no statistics,
    but `pred` gives the votes of the majority.
    """
    rows_of: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, (source, uid) in enumerate(zip(data_sources, sample_uids, strict=True)):
        rows_of[source][uid].append(row)
    predictions = infos_dict.get("pred")
    result: Statistics = {}
    for source, prompts in rows_of.items():
        result[source] = {}
        for variable, column in infos_dict.items():
            collected: dict[str, list[float]] = defaultdict(list)
            for rows in prompts.values():
                scored = [(row, number) for row in rows if (number := _number(column[row])) is not None]
                votes = [predictions[row] for row, _ in scored] if predictions is not None else None
                found = _prompt_statistics(np.array([number for _, number in scored]), votes, seed)
                for name, value in found.items():
                    collected[name].append(value)
            if collected:
                result[source][variable] = {name: float(np.mean(values)) for name, values in collected.items()}
    return result


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, str | bytes | list | dict | tuple):
        return None
    number = float(value)
    return number if np.isfinite(number) else None


def _prompt_statistics(values: np.ndarray, votes: list[Any] | None, seed: int) -> dict[str, float]:
    n = len(values)
    if n == 0:
        return {}
    found = {f"mean@{n}": float(values.mean())}
    if n == 1:
        return found
    found[f"std@{n}"] = float(values.std())
    for size in _subset_sizes(n):
        draws = _draws(n, size, NUM_BOOTSTRAP, seed)
        drawn = values[draws]
        estimates = {"best": drawn.max(1), "worst": drawn.min(1)}
        if votes is not None:
            estimates["maj"] = _majority(drawn, _codes(votes)[draws])
        for name, estimate in estimates.items():
            found[f"{name}@{size}/mean"] = float(estimate.mean())
            found[f"{name}@{size}/std"] = float(estimate.std())
    return found


def _subset_sizes(n: int) -> list[int]:
    """2, 4, 8, ... below n, and n."""
    return [2**power for power in range(1, (n - 1).bit_length())] + [n]


def _draws(n: int, size: int, number: int, seed: int) -> np.ndarray:
    """Row numbers of the resampled subsets [number, size]; the legacy generator, so that seeds mean what they meant."""
    return np.random.RandomState(seed).randint(0, n, size=(number, size))


def _codes(votes: list[Any]) -> np.ndarray:
    known: dict[Any, int] = {}
    return np.array([known.setdefault(vote, len(known)) for vote in votes])


def _majority(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """`calc_maj_val` of every row of [R, n] at once."""
    number, kinds = len(codes), int(codes.max()) + 1
    flat = codes + kinds * np.arange(number)[:, None]
    count = np.bincount(flat.ravel(), minlength=number * kinds)[flat]
    # The first place with the highest count holds the winner's first appearance.
    return np.take_along_axis(values, count.argmax(1)[:, None], axis=1)[:, 0]
