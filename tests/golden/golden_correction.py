# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rollout correction from its formulas, in float64 and one token at a time; imports nothing of verl."""

import math

import numpy as np


def bounded(x):
    return min(max(x, -20.0), 20.0)


def rows_of(log_ratio, mask):
    return [[x for x, k in zip(line, keep, strict=True) if k] for line, keep in zip(log_ratio, mask, strict=True)]


def std(values):
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def share(flags):
    return float(np.mean(flags)) if len(flags) else 0.0


def importance(log_ratio, mask, level, upper, lower=None, normalize=False):
    """Weights, and metrics of them before normalisation."""
    rows = rows_of(log_ratio, mask)
    units = [[sum(row)] * len(row) if level == "sequence" else row for row in rows]
    raw = [[math.exp(bounded(x)) for x in row] for row in units]
    if lower is None:
        used = [[min(w, upper) for w in row] for row in raw]
    else:
        used = [[w if lower <= w <= upper else 0.0 for w in row] for row in raw]
    flat_used = [w for row in used for w in row]
    flat_raw = [w for row in raw for w in row]
    seq_used = [np.mean(row) for row in used if row]
    seq_raw = [np.mean(row) for row in raw if row]
    counted = [row[0] for row in units if row] if level == "sequence" else [x for row in rows for x in row]
    floor = 1 / upper if lower is None else lower
    mean = np.mean(flat_used)
    metrics = {
        "rollout_is_mean": mean,
        "rollout_is_max": math.exp(bounded(max(counted))),
        "rollout_is_min": math.exp(bounded(min(counted))),
        "rollout_is_std": std(flat_used),
        "rollout_is_eff_sample_size": 1 / np.mean([(w / mean) ** 2 for w in flat_used]),
        "rollout_is_ratio_fraction_high": share([x > math.log(upper) for x in counted]),
        "rollout_is_ratio_fraction_low": share([x < math.log(floor) for x in counted]),
        "rollout_is_seq_mean": np.mean(seq_used),
        "rollout_is_seq_std": std(seq_used),
        "rollout_is_seq_max": max(seq_used),
        "rollout_is_seq_min": min(seq_used),
        "rollout_is_seq_max_deviation": max(abs(w - 1) for w in seq_used),
        "rollout_is_seq_fraction_high": share([w > upper for w in seq_raw]),
        "rollout_is_seq_fraction_low": share([w < floor for w in seq_raw]),
    }
    if lower is not None:
        metrics["rollout_is_oob_ratio"] = share([not lower <= w <= upper for w in flat_raw])
    if normalize:
        factor = np.mean(seq_used) if level == "sequence" else mean
        metrics["rollout_is_batch_norm_factor"] = factor
        used = [[w / factor for w in row] for row in used]
    weights = np.zeros(np.shape(mask))
    weights[np.array(mask, bool)] = [w for row in used for w in row]
    return weights, metrics


def estimator(k, x):
    """k1, k2, k3 of KL(rollout || training) at a token with log(training / rollout) = x."""
    x = bounded(x)
    return {1: -x, 2: x * x / 2, 3: math.exp(x) - 1 - x}[k]


def rejection(log_ratio, mask, option, ratio_bounds=None, upper=None):
    """Mask left by one option; ratio bounds for k1, an upper bound of the statistic for k2 and k3."""
    level, _, k = option.rpartition("_k")
    values = [[estimator(int(k), x) for x in row] for row in rows_of(log_ratio, mask)]
    low, high = (-math.log(ratio_bounds[1]), -math.log(ratio_bounds[0])) if ratio_bounds else (-math.inf, upper)
    reduce = {"token": np.mean, "seq_sum": sum, "seq_mean": np.mean, "seq_max": max}[level]
    seq = [float(reduce(row)) for row in values if row]
    unit = [v for row in values for v in row] if level == "token" else seq
    kept = []
    seqs = iter(seq)
    for row in values:
        whole = next(seqs) if row else 0.0
        kept.append([low <= (v if level == "token" else whole) <= high for v in row])
    flat = [k for row in kept for k in row]
    name = f"rollout_rs_{option}_"
    metrics = {
        name + "mean": np.mean(unit),
        name + "max": max(unit),
        name + "min": min(unit),
        name + "std": std(unit),
        name + "fraction_high": share([v > high for v in unit]),
        name + "fraction_low": share([v < low for v in unit]),
        name + "seq_mean": np.mean(seq),
        name + "seq_std": std(seq),
        name + "seq_max": max(seq),
        name + "seq_min": min(seq),
        name + "seq_max_deviation": max(abs(v) for v in seq),
        name + "seq_fraction_high": share([v > high for v in seq]),
        name + "seq_fraction_low": share([v < low for v in seq]),
        name + "masked_fraction": share([not k for k in flat]),
        name + "seq_masked_fraction": share([not all(row) for row in kept if row]),
    }
    left = np.zeros(np.shape(mask))
    left[np.array(mask, bool)] = flat
    return left, metrics


def diagnostics(training, rollout, mask):
    train_rows, roll_rows = rows_of(training, mask), rows_of(rollout, mask)
    log_r = [a - b for row, other in zip(train_rows, roll_rows, strict=True) for a, b in zip(row, other, strict=True)]
    ratio = [math.exp(bounded(x)) for x in log_r]
    train = [np.mean(row) for row in train_rows if row]
    roll = [np.mean(row) for row in roll_rows if row]
    gap = [b - a for a, b in zip(train, roll, strict=True)]
    seq = [sum(a) - sum(b) for a, b in zip(train_rows, roll_rows, strict=True) if a]
    return {
        "training_ppl": np.mean([math.exp(-x) for x in train]),
        "training_log_ppl": np.mean([-x for x in train]),
        "kl": np.mean([-x for x in log_r]),
        "k3_kl": np.mean([math.exp(bounded(x)) - bounded(x) - 1 for x in log_r]),
        "rollout_ppl": np.mean([math.exp(-x) for x in roll]),
        "rollout_log_ppl": np.mean([-x for x in roll]),
        "log_ppl_diff": np.mean(gap),
        "log_ppl_abs_diff": np.mean(np.abs(gap)),
        "log_ppl_diff_max": max(gap),
        "log_ppl_diff_min": min(gap),
        "ppl_ratio": np.mean(np.exp(gap)),
        "chi2_token": np.mean([r**2 for r in ratio]) - 1,
        "chi2_seq": np.mean([math.exp(2 * bounded(x)) for x in seq]) - 1,
        "ess": 1 / np.mean([(r / np.mean(ratio)) ** 2 for r in ratio]),
    }
