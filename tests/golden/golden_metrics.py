# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics from their definitions, in float64; imports nothing of verl."""

import numpy as np


def spread(name, values):
    values = np.asarray(values, dtype=np.float64)
    if not len(values):
        return {f"{name}/mean": 0.0, f"{name}/max": 0.0, f"{name}/min": 0.0}
    return {f"{name}/mean": values.mean(), f"{name}/max": values.max(), f"{name}/min": values.min()}


def share(flags):
    return float(np.mean(flags)) if len(flags) else 0.0


def data_metrics(b, use_critic):
    """`b`: prompt_mask, response_mask, policy_mask, scores, rewards, advantages, returns, values, turns."""
    length = b["response_mask"].sum(1)
    prompt = b["prompt_mask"].sum(1)
    answered, policy = length > 0, b["policy_mask"] > 0
    found = {}
    for name, key in (("critic/score", "scores"), ("critic/rewards", "rewards")):
        total = b[key].sum(1)
        found |= spread(name, total[answered & np.isfinite(total)])
    for name in ("advantages", "returns"):
        found |= spread(f"critic/{name}", b[name][policy])
    if use_critic:
        values, returns = b["values"][policy], b["returns"][policy]
        found |= spread("critic/values", values)
        explained = 0.0
        if len(values) > 1:
            explained = 1 - np.var(returns - values, ddof=1) / (np.var(returns, ddof=1) + 1e-5)
        found["critic/vf_explained_var"] = explained
    cut = length == b["response_mask"].shape[1]
    found |= spread("response_length", length) | {"response_length/clip_ratio": share(cut)}
    found |= spread("response_length_non_aborted", length[answered])
    found |= {"response_length_non_aborted/clip_ratio": share(cut[answered])}
    found |= {"response/aborted_ratio": share(length == 0)}
    found |= spread("prompt_length", prompt)
    found |= {"prompt_length/clip_ratio": share(prompt == b["prompt_mask"].shape[1])}
    return found | spread("num_turns", b["turns"])


def timing_metrics(b, timers):
    response, prompt = b["response_mask"].sum(), b["prompt_mask"].sum()
    found = {f"timing_s/{name}": seconds for name, seconds in timers.items()}
    for name in ("gen", "ref", "values", "adv", "update_critic", "update_actor"):
        if name in timers:
            tokens = response if name == "gen" else response + prompt
            found[f"timing_per_token_ms/{name}"] = 1000 * timers[name] / tokens if tokens else 0.0
    return found


def variance_proxy(b, weights, gradient_norm):
    """total = mean(A^2 W), W the squared score norm of a response; noise = (total - |g|^2) / (N - 1), at least 0."""
    squared, energy = [], []
    for row, keep in enumerate(b["policy_mask"] > 0):
        if keep.any():
            norm = 1 - 2 * np.exp(b["old_log_probs"][row]) + b["sum_pi_squared"][row]
            energy.append((norm * (1 if weights is None else weights[row] ** 2))[keep].sum())
            squared.append(b["advantages"][row][keep].mean() ** 2)
    number = len(squared)
    total = np.mean(np.multiply(squared, energy)) if number else 0.0
    found = {
        "variance_proxy/proxy2_total_power": total,
        "variance_proxy/expected_a_squared": np.mean(squared) if number else 0.0,
        "variance_proxy/expected_w": np.mean(energy) if number else 0.0,
    }
    if gradient_norm is not None:
        found["variance_proxy/proxy1_signal_strength"] = gradient_norm**2
        noise = max(0.0, (total - gradient_norm**2) / (number - 1)) if number > 1 else 0.0
        found["variance_proxy/proxy3_pure_noise"] = noise
    return found


def probability_difference(rollout, trainer, mask):
    """`training/rollout_probs_diff_*` and Pearson's correlation of the two probabilities."""
    p, q = np.exp(rollout[mask > 0]), np.exp(trainer[mask > 0])
    difference = np.abs(p - q)
    return {
        "training/rollout_probs_diff_valid": 1,
        "training/rollout_probs_diff_max": difference.max(),
        "training/rollout_probs_diff_mean": difference.mean(),
        "training/rollout_probs_diff_std": difference.std(ddof=1),
        "training/rollout_actor_probs_pearson_corr": np.corrcoef(p, q)[0, 1],
    }


def majority(votes, values):
    """The value of the first answer that has the most frequent vote; of two votes, the one seen first."""
    number = {vote: votes.count(vote) for vote in votes}
    winner = max(number, key=number.get)
    return values[votes.index(winner)]


def validation_of_prompt(values, votes, draws=1000, seed=42):
    """mean@N, std@N, and the bootstrap of best, worst and majority of n for n = 2, 4, 8, ... and N."""
    number = len(values)
    found = {f"mean@{number}": np.mean(values)}
    if number == 1:
        return found
    found[f"std@{number}"] = np.std(values)
    sizes = [n for n in (2, 4, 8, 16) if n < number] + [number]
    for size in sizes:
        generator = np.random.RandomState(seed)
        best, worst, most = [], [], []
        for _ in range(draws):
            chosen = generator.choice(number, size=size, replace=True)
            drawn = [values[i] for i in chosen]
            best.append(max(drawn))
            worst.append(min(drawn))
            if votes is not None:
                most.append(majority([votes[i] for i in chosen], drawn))
        for name, sample in (("best", best), ("worst", worst), ("maj", most)):
            if sample:
                found[f"{name}@{size}/mean"] = np.mean(sample)
                found[f"{name}@{size}/std"] = np.std(sample)
    return found


def validation(sources, uids, columns):
    found = {}
    for source in dict.fromkeys(sources):
        prompts = dict.fromkeys(uid for uid, of in zip(uids, sources, strict=True) if of == source)
        found[source] = {}
        for name, column in columns.items():
            if name == "pred":
                continue
            collected = {}
            for uid in prompts:
                rows = [i for i, other in enumerate(uids) if other == uid and column[i] is not None]
                votes = [columns["pred"][i] for i in rows] if "pred" in columns else None
                for key, value in validation_of_prompt([column[i] for i in rows], votes).items():
                    collected.setdefault(key, []).append(value)
            found[source][name] = {key: np.mean(values) for key, values in collected.items()}
    return found


def reweight(scores, counted, method, power):
    """PF-PPO: the probability with which each row is drawn."""
    kept = scores[counted]
    weight = {
        "pow": np.abs(scores) ** power,
        "max_min": np.where((scores == kept.max()) | (scores == kept.min()), 1.0, 0.0),
        "max_random": np.where(scores == kept.max(), 0.4, 0.1),
    }[method]
    return np.where(counted, weight + 1e-8, 0.0)
