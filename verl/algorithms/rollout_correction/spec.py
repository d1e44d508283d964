# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a rollout correction is asked to do, read and checked once.

A ratio is the training policy's probability over the rollout policy's.
"""

import math
from dataclasses import dataclass
from typing import Any

from verl.algorithms.settings import setting
from verl.errors import ConfigError

SAFETY_BOUND = 20.0
"""Largest exponent: exp(20) is 5e8."""

IS_LEVELS = ("token", "sequence")
RS_OPTIONS = (
    *(f"token_k{k}" for k in (1, 2, 3)),
    *(f"seq_sum_k{k}" for k in (1, 2, 3)),
    *(f"seq_mean_k{k}" for k in (1, 2, 3)),
    *(f"seq_max_k{k}" for k in (2, 3)),
)
_WHERE = "algorithm.rollout_correction."


@dataclass(frozen=True)
class ImportanceSpec:
    """Importance weights: truncated at `upper` (TIS), or zeroed outside `[lower, upper]` (IcePop)."""

    level: str
    upper: float
    lower: float | None = None
    batch_normalize: bool = False


@dataclass(frozen=True)
class RejectionRule:
    """One rejection option; the statistic must lie within `[lower, upper]` (no lower bound for k2 and k3).

    The statistic of k1 is `-log ratio`, so ratio bounds [a, b] become [-log b, -log a].
    """

    option: str
    estimator: int
    reduction: str
    """token, sum, mean or max."""
    upper: float
    lower: float | None = None


@dataclass(frozen=True)
class CorrectionSpec:
    """Importance weights and rejection rules; either may be absent."""

    importance: ImportanceSpec | None = None
    rejection: tuple[RejectionRule, ...] = ()


def parse_correction(
    rollout_is: str | None = None,
    rollout_is_threshold: str | float | None = 2.0,
    rollout_is_batch_normalize: bool = False,
    rollout_rs: str | None = None,
    rollout_rs_threshold: str | float | None = None,
) -> CorrectionSpec:
    """Read the five settings; a wrong one is an error that names its key."""
    importance = None
    if rollout_is is not None:
        importance = parse_importance(rollout_is, rollout_is_threshold, rollout_is_batch_normalize)
    rejection = parse_rejection(rollout_rs, rollout_rs_threshold) if rollout_rs else ()
    return CorrectionSpec(importance, rejection)


def read_correction(config: Any) -> CorrectionSpec:
    """The correction that `algorithm.rollout_correction` (or a copy of it) describes."""
    return parse_correction(
        rollout_is=setting(config, "rollout_is"),
        rollout_is_threshold=setting(config, "rollout_is_threshold", 2.0),
        rollout_is_batch_normalize=setting(config, "rollout_is_batch_normalize", False),
        rollout_rs=setting(config, "rollout_rs"),
        rollout_rs_threshold=setting(config, "rollout_rs_threshold"),
    )


def parse_importance(level: str, threshold: str | float | None, batch_normalize: bool = False) -> ImportanceSpec:
    """A number truncates from above; `low_high` zeroes what lies outside."""
    if level not in IS_LEVELS:
        raise ConfigError("unknown level", where=_WHERE + "rollout_is", got=level, expected="null | token | sequence")
    where = _WHERE + "rollout_is_threshold"
    lower, upper = _bounds(threshold, where)
    if upper <= 0:
        raise ConfigError("the threshold must be positive", where=where, got=threshold)
    return ImportanceSpec(level, upper, lower, bool(batch_normalize))


def parse_rejection(options: str, thresholds: str | float | None) -> tuple[RejectionRule, ...]:
    """Comma-separated options with comma-separated thresholds, one for each or one for all."""
    where = _WHERE + "rollout_rs_threshold"
    names = [name.strip() for name in options.split(",") if name.strip()]
    if thresholds is None:
        raise ConfigError("rejection needs a threshold", where=where, got=None, expected=f"one for {names}")
    values = [value.strip() for value in str(thresholds).split(",") if value.strip()]
    if len(values) == 1:
        values *= len(names)
    if len(values) != len(names):
        raise ConfigError("one threshold for all options or one for each", where=where, got=values, expected=names)
    return tuple(_rule(name, value) for name, value in zip(names, values, strict=True))


def _rule(option: str, threshold: str) -> RejectionRule:
    if option not in RS_OPTIONS:
        raise ConfigError(
            "unknown rejection option", where=_WHERE + "rollout_rs", got=option, expected=" | ".join(RS_OPTIONS)
        )
    where = f"{_WHERE}rollout_rs_threshold ({option})"
    level, _, estimator = option.rpartition("_k")
    reduction = level.removeprefix("seq_")
    lower, upper = _bounds(threshold, where)
    if upper <= 0:
        raise ConfigError("the threshold must be positive", where=where, got=threshold)
    if estimator == "1":
        # One number bounds the ratio on both sides alike: [1/u, u].
        ratio_low = lower if lower is not None else 1.0 / upper
        if ratio_low <= 0 or ratio_low > upper:
            raise ConfigError("ratio bounds must be 0 < low <= high", where=where, got=threshold)
        return RejectionRule(option, 1, reduction, upper=-math.log(ratio_low), lower=-math.log(upper))
    if lower is not None:
        raise ConfigError("k2 and k3 have an upper bound only", where=where, got=threshold, expected="one number")
    return RejectionRule(option, int(estimator), reduction, upper=upper)


def _bounds(threshold: str | float | None, where: str) -> tuple[float | None, float]:
    """`2.0` -> (None, 2.0); `0.5_2.0` -> (0.5, 2.0)."""
    try:
        if not isinstance(threshold, str):
            return None, float(threshold)  # type: ignore[arg-type]
        numbers = [float(part) for part in threshold.split("_")]
        if len(numbers) == 1:
            return None, numbers[0]
        lower, upper = numbers
    except (TypeError, ValueError) as error:
        raise ConfigError("not a threshold", where=where, got=threshold, expected="a number or 'low_high'") from error
    if lower > upper:
        raise ConfigError("the lower bound exceeds the upper", where=where, got=threshold)
    return lower, upper
