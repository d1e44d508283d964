# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Losses from the papers' formulas, in float64 and one token at a time; imports nothing of verl.

Every policy loss takes `anchor`: the log-probabilities inside stop-gradients. Differentiating numerically in `new`
alone gives the gradient that automatic differentiation must give.
"""

import math

import numpy as np


def bounded(x):
    return min(max(x, -20.0), 20.0)


def clip(x, low, high):
    return min(max(x, low), high)


def aggregate(loss, mask, mode, dp_size=1, batch_num_tokens=None, global_batch_size=None, loss_scale_factor=None):
    rows = [[(x, m) for x, m in zip(line, keep, strict=True) if m] for line, keep in zip(loss, mask, strict=True)]
    sums = [sum(x * m for x, m in row) for row in rows]
    counts = [sum(m for _, m in row) for row in rows]
    tokens = batch_num_tokens if batch_num_tokens is not None else sum(counts)
    sequences = global_batch_size if global_batch_size is not None else sum(count > 0 for count in counts)
    if mode == "token-sum":
        return sum(sums) * dp_size
    if mode == "token-mean":
        return sum(sums) / (tokens or 1) * dp_size
    if mode == "seq-mean-token-mean":
        means = [s / count for s, count in zip(sums, counts, strict=True) if count]
        return sum(means) / (sequences or 1) * dp_size
    total = sum(sums) / (sequences or 1) * dp_size
    if mode == "seq-mean-token-sum":
        return total
    return total / (loss_scale_factor or len(mask[0]))


def tokens(mask):
    return [(i, t) for i, keep in enumerate(mask) for t, k in enumerate(keep) if k]


def mean_over(mask, value):
    places = tokens(mask)
    return sum(float(value(i, t)) for i, t in places) / len(places) if places else 0.0


def log_ratio(old, new, i, t):
    return bounded(new[i][t] - old[i][t])


def matrix(mask, value):
    out = np.zeros(np.shape(mask))
    for i, t in tokens(mask):
        out[i, t] = value(i, t)
    return out


def weighted(mask, value, weights):
    return matrix(mask, lambda i, t: value(i, t) * (1.0 if weights is None else weights[i][t]))


def ppo(old, new, adv, mask, anchor, c, weights=None, mode="token-mean", **counts):
    low, high, cap = c["clip_ratio_low"], c["clip_ratio_high"], c["clip_ratio_c"]

    def parts(i, t):
        r, a = math.exp(log_ratio(old, new, i, t)), adv[i][t]
        return -r * a, -clip(r, 1 - low, 1 + high) * a, -cap * a

    def value(i, t):
        free, clipped, ceiling = parts(i, t)
        loss = max(free, clipped)
        return min(loss, ceiling) if adv[i][t] < 0 else loss

    metrics = {
        "actor/pg_clipfrac": mean_over(mask, lambda i, t: parts(i, t)[1] > parts(i, t)[0]),
        "actor/ppo_kl": mean_over(mask, lambda i, t: -log_ratio(old, new, i, t)),
        "actor/pg_clipfrac_lower": mean_over(
            mask, lambda i, t: adv[i][t] < 0 and max(parts(i, t)[:2]) > parts(i, t)[2]
        ),
    }
    return aggregate(weighted(mask, value, weights), mask, mode, **counts), metrics


def gspo(old, new, adv, mask, anchor, c, weights=None, mode="token-mean", **counts):
    low, high = c["clip_ratio_low"], c["clip_ratio_high"]
    log_s = [
        np.mean([log_ratio(old, anchor, i, t) for t, k in enumerate(keep) if k]) if any(keep) else 0.0
        for i, keep in enumerate(mask)
    ]

    def parts(i, t):
        s = math.exp(log_s[i]) * math.exp(new[i][t] - anchor[i][t])
        return -s * adv[i][t], -clip(s, 1 - low, 1 + high) * adv[i][t]

    metrics = {
        "actor/pg_clipfrac": mean_over(mask, lambda i, t: parts(i, t)[1] > parts(i, t)[0]),
        "actor/ppo_kl": mean_over(mask, lambda i, t: -log_ratio(old, new, i, t)),
        "actor/pg_clipfrac_lower": 0.0,
    }
    loss = weighted(mask, lambda i, t: max(parts(i, t)), weights)
    return aggregate(loss, mask, "seq-mean-token-mean", **counts), metrics


def gmpo(old, new, adv, mask, anchor, c, weights=None, mode="token-mean", **counts):
    low, high = c["clip_ratio_low"], c["clip_ratio_high"]
    rows, kept = [], []
    for i, keep in enumerate(mask):
        ts = [t for t, k in enumerate(keep) if k]
        kept.append([1.0 if ts else 0.0])
        if not ts:
            rows.append([0.0])
            continue
        logs = []
        for t in ts:
            lr, sign = log_ratio(old, new, i, t), np.sign(adv[i][t])
            logs.append(sign * min(sign * lr, sign * clip(lr, -low, high)))
        row = -np.mean([adv[i][t] for t in ts]) * math.exp(np.mean(logs))
        if weights is not None:
            row *= math.exp(np.mean([math.log(weights[i][t]) for t in ts]))
        rows.append([row])

    def outside(i, t):
        return not -low <= log_ratio(old, new, i, t) <= high

    metrics = {
        "actor/pg_clipfrac": mean_over(mask, lambda i, t: outside(i, t) and adv[i][t] > 0),
        "actor/ppo_kl": mean_over(mask, lambda i, t: -log_ratio(old, new, i, t)),
        "actor/pg_clipfrac_lower": mean_over(mask, lambda i, t: outside(i, t) and adv[i][t] < 0),
    }
    return aggregate(rows, kept, "seq-mean-token-sum", **counts), metrics


def dppo(divergence):
    def loss(old, new, adv, mask, anchor, c, weights=None, mode="token-mean", **counts):
        low, high, cap = c["clip_ratio_low"], c["clip_ratio_high"], c["clip_ratio_c"]

        def dropped(i, t):
            mu, pi, a = math.exp(old[i][t]), math.exp(anchor[i][t]), adv[i][t]
            far = divergence(mu, pi)
            return (a > 0 and pi > mu and far > high) or (a < 0 and pi < mu and far > low)

        def capped(i, t):
            return adv[i][t] < 0 and math.exp(log_ratio(old, new, i, t)) > cap

        def value(i, t):
            if dropped(i, t):
                return 0.0
            return -adv[i][t] * (cap if capped(i, t) else math.exp(log_ratio(old, new, i, t)))

        metrics = {
            "actor/pg_clipfrac": mean_over(mask, dropped),
            "actor/ppo_kl": mean_over(mask, lambda i, t: -log_ratio(old, new, i, t)),
            "actor/pg_clipfrac_lower": mean_over(mask, capped),
        }
        return aggregate(weighted(mask, value, weights), mask, mode, **counts), metrics

    return loss


dppo_tv = dppo(lambda mu, pi: abs(mu - pi))
dppo_kl = dppo(lambda mu, pi: mu * math.log(mu / pi) + (1 - mu) * math.log((1 - mu) / (1 - pi)))


def sapo(old, new, adv, mask, anchor, c, weights=None, mode="token-mean", **counts):
    def value(i, t):
        tau = c["tau_pos"] if adv[i][t] > 0 else c["tau_neg"]
        r = math.exp(log_ratio(old, new, i, t))
        return -adv[i][t] * (4 / tau) / (1 + math.exp(-tau * (r - 1)))

    metrics = {
        "actor/pg_clipfrac": 0.0,
        "actor/ppo_kl": mean_over(mask, lambda i, t: -log_ratio(old, new, i, t)),
        "actor/pg_clipfrac_lower": 0.0,
    }
    return aggregate(weighted(mask, value, weights), mask, "seq-mean-token-mean", **counts), metrics


def cispo(old, new, adv, mask, anchor, c, weights=None, mode="token-mean", **counts):
    low, high = c["clip_ratio_low"], c["clip_ratio_high"]

    def weight(i, t):
        return clip(math.exp(log_ratio(old, anchor, i, t)), 1 - low, 1 + high)

    metrics = {
        "actor/pg_clipfrac": mean_over(mask, lambda i, t: weight(i, t) != math.exp(log_ratio(old, anchor, i, t))),
        "actor/ppo_kl": mean_over(mask, lambda i, t: -log_ratio(old, new, i, t)),
        "actor/pg_clipfrac_lower": 0.0,
    }
    loss = weighted(mask, lambda i, t: -weight(i, t) * adv[i][t] * new[i][t], weights)
    return aggregate(loss, mask, mode, **counts), metrics


def policy_gradient(old, new, adv, mask, anchor, c, weights=None, mode="token-mean", **counts):
    return aggregate(weighted(mask, lambda i, t: -adv[i][t] * new[i][t], weights), mask, mode, **counts), {}


def reinforce(old, new, adv, mask, anchor, c, weights=None, mode="token-mean", **counts):
    loss, _ = policy_gradient(old, new, adv, mask, anchor, c, weights, mode, **counts)
    return loss, {"actor/ppo_kl": mean_over(mask, lambda i, t: -log_ratio(old, new, i, t))}


def covariance(adv, log_prob, mask):
    mean_a, mean_l = mean_over(mask, lambda i, t: adv[i][t]), mean_over(mask, lambda i, t: log_prob[i][t])
    return {(i, t): (adv[i][t] - mean_a) * (log_prob[i][t] - mean_l) for i, t in tokens(mask)}


def clip_cov(old, new, adv, mask, anchor, c, weights=None, mode="token-mean", **counts):
    """With a ratio so large that every candidate is dropped (which of them is random otherwise)."""
    low, high = c["clip_ratio_low"], c["clip_ratio_high"]
    cov, p = covariance(adv, anchor, mask), c["policy_loss"]

    def parts(i, t, logs):
        r = math.exp(log_ratio(old, logs, i, t))
        return -r * adv[i][t], -clip(r, 1 - low, 1 + high) * adv[i][t]

    def dropped(i, t):
        free, clipped = parts(i, t, anchor)
        return clipped <= free and p["clip_cov_lb"] < cov[i, t] < p["clip_cov_ub"]

    metrics = {
        "actor/pg_clipfrac": mean_over(mask, dropped),
        "actor/ppo_kl": mean_over(mask, lambda i, t: -log_ratio(old, new, i, t)),
    }
    loss = weighted(mask, lambda i, t: 0.0 if dropped(i, t) else max(parts(i, t, new)), weights)
    return aggregate(loss, mask, mode, **counts), metrics


def kl_cov(old, new, adv, mask, anchor, c, weights=None, mode="token-mean", **counts):
    cov, p = covariance(adv, anchor, mask), c["policy_loss"]
    count = max(1, int(len(cov) * p["kl_cov_ratio"]))
    chosen = set(sorted(cov, key=lambda place: -cov[place])[:count])

    def value(i, t):
        lr = log_ratio(old, new, i, t)
        return -adv[i][t] * math.exp(lr) + (p["ppo_kl_coef"] * abs(lr) if (i, t) in chosen else 0.0)

    metrics = {"actor/ppo_kl": mean_over(mask, lambda i, t: abs(log_ratio(old, new, i, t)))}
    return aggregate(weighted(mask, value, weights), mask, mode, **counts), metrics


def value_loss(predicted, returns, values, mask, c, mode="token-mean", **counts):
    def errors(i, t):
        clipped = clip(predicted[i][t], values[i][t] - c, values[i][t] + c)
        return (predicted[i][t] - returns[i][t]) ** 2, (clipped - returns[i][t]) ** 2

    loss = matrix(mask, lambda i, t: 0.5 * max(errors(i, t)))
    return aggregate(loss, mask, mode, **counts), mean_over(mask, lambda i, t: errors(i, t)[1] > errors(i, t)[0])


def kl(name, logp, ref):
    """Value of the estimator of KL(policy || reference) at one token."""
    if name in ("kl", "k1"):
        return logp - ref
    if name == "abs":
        return abs(logp - ref)
    if name in ("mse", "k2"):
        return (logp - ref) ** 2 / 2
    r = math.exp(bounded(ref - logp))
    return clip(r - 1 - bounded(ref - logp), -10, 10)
