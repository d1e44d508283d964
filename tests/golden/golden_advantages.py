# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Advantages from the papers' formulas, in float64 and one number at a time; imports nothing of verl."""

from collections import defaultdict

import numpy as np


def participants(rewards, mask):
    """Score of each row over its policy tokens, and whether the row takes part (a token left, reward known)."""
    scores, takes_part = [], []
    for reward, keep in zip(rewards, mask, strict=True):
        total = sum(r for r, k in zip(reward, keep, strict=True) if k)
        part = bool(any(keep)) and bool(np.isfinite(total))
        takes_part.append(part)
        scores.append(total if part else 0.0)
    return scores, takes_part


def members(index, takes_part):
    groups = defaultdict(list)
    for row, uid in enumerate(index):
        if takes_part[row]:
            groups[uid].append(row)
    return groups.values()


def on_tokens(row_values, mask, takes_part):
    out = np.zeros(np.shape(mask))
    for row, keep in enumerate(mask):
        for t, k in enumerate(keep):
            if k and takes_part[row]:
                out[row, t] = row_values[row]
    return out


def whiten(values, mask):
    """Zero mean, unit sample variance over the masked elements; unchanged where there are fewer than two."""
    kept = values[mask.astype(bool)]
    if len(kept) < 2:
        return values * mask
    return np.where(mask, (values - kept.mean()) / np.sqrt(kept.var(ddof=1) + 1e-8), 0.0)


def effective_mask(mask, takes_part):
    return np.array([[float(bool(k)) * p for k in keep] for keep, p in zip(mask, takes_part, strict=True)])


def grpo_rows(scores, index, takes_part, epsilon, divide_by_std):
    advantage = [0.0] * len(scores)
    for rows in members(index, takes_part):
        group = [scores[row] for row in rows]
        mean, std = (0.0, 1.0) if len(rows) == 1 else (np.mean(group), np.std(group, ddof=1))
        for row in rows:
            advantage[row] = (scores[row] - mean) / (std + epsilon if divide_by_std else 1.0)
    return advantage


def grpo(rewards, mask, index, epsilon=1e-6, divide_by_std=True):
    scores, part = participants(rewards, mask)
    return on_tokens(grpo_rows(scores, index, part, epsilon, divide_by_std), mask, part)


def passk(rewards, mask, index, epsilon=1e-6, divide_by_std=True):
    scores, part = participants(rewards, mask)
    advantage = [0.0] * len(scores)
    for rows in members(index, part):
        if len(rows) < 2:
            continue
        ranked = sorted(rows, key=lambda row: -scores[row])
        lead = scores[ranked[0]] - scores[ranked[1]]
        advantage[ranked[0]] = lead / (
            np.std([scores[row] for row in rows], ddof=1) + epsilon if divide_by_std else 1.0
        )
    return on_tokens(advantage, mask, part)


def gdpo(rewards, mask, index, columns, weights, epsilon=1e-6):
    _, part = participants(rewards, mask)
    part = [p and all(np.isfinite(column[row]) for column in columns) for row, p in enumerate(part)]
    total = np.zeros(len(part))
    for weight, column in zip(weights, columns, strict=True):
        known = [value if p else 0.0 for value, p in zip(column, part, strict=True)]
        total += weight * np.array(grpo_rows(known, index, part, epsilon, True))
    return whiten(on_tokens(total, mask, part), effective_mask(mask, part))


def gae(rewards, values, mask, gamma, lam):
    _, part = participants(rewards, mask)
    advantage = np.zeros(np.shape(mask))
    for row, keep in enumerate(mask):
        following_value = following_advantage = 0.0
        for t in reversed(range(len(keep))):
            if not keep[t] or not part[row]:
                continue
            delta = rewards[row][t] + gamma * following_value - values[row][t]
            following_advantage = delta + gamma * lam * following_advantage
            following_value = values[row][t]
            advantage[row, t] = following_advantage
    returns = advantage + np.where(np.array(mask, bool), values, 0.0)
    return whiten(advantage, effective_mask(mask, part)), returns


def returns_to_go(rewards, mask, gamma, part):
    out = np.zeros(np.shape(mask))
    for row, keep in enumerate(mask):
        running = 0.0
        for t in reversed(range(len(keep))):
            if keep[t] and part[row]:
                running = rewards[row][t] + gamma * running
                out[row, t] = running
    return out


def reinforce_plus_plus(rewards, mask, gamma):
    _, part = participants(rewards, mask)
    returns = returns_to_go(rewards, mask, gamma, part)
    return whiten(returns, effective_mask(mask, part)), returns


def group_baseline(rewards, mask, index, kind):
    """Advantages of one number a row: the baseline is the group's mean, the others' mean, or length-weighted."""
    scores, part = participants(rewards, mask)
    advantage = list(scores)
    for rows in members(index, part):
        if len(rows) == 1:
            continue
        for row in rows:
            if kind == "mean":
                baseline = np.mean([scores[r] for r in rows])
            elif kind == "others":
                baseline = np.mean([scores[r] for r in rows if r != row])
            else:
                lengths = [sum(bool(k) for k in mask[r]) for r in rows]
                baseline = sum(n * scores[r] for n, r in zip(lengths, rows, strict=True)) / sum(lengths)
            advantage[row] = scores[row] - baseline
    return on_tokens(advantage, mask, part), part


def rloo(rewards, mask, index):
    return group_baseline(rewards, mask, index, "others")[0]


def opo(rewards, mask, index):
    return group_baseline(rewards, mask, index, "length")[0]


def reinforce_plus_plus_baseline(rewards, mask, index):
    centred, part = group_baseline(rewards, mask, index, "mean")
    return whiten(centred, effective_mask(mask, part))


def gpg(rewards, mask, index, f_norm=1.0, alpha=1.0):
    scores, part = participants(rewards, mask)
    rewarded = max(sum(score != 0 for score in scores), 1)
    return group_baseline(rewards, mask, index, "mean")[0] * alpha * sum(part) / rewarded / f_norm


def remax(rewards, baselines, mask):
    _, part = participants(rewards, mask)
    part = [p and bool(np.isfinite(b)) for p, b in zip(part, baselines, strict=True)]
    returns = returns_to_go(rewards, mask, 1.0, part)
    return np.where(effective_mask(mask, part) > 0, returns - np.array(baselines)[:, None], 0.0), returns


def optimal_baseline(
    rewards, mask, index, log_prob, sum_pi_squared, weights=None, zero_tail=True, by_token_number=False
):
    """B_t = E[G_t W_t] / E[W_t], tokens matched by position or by their number among the policy's tokens."""
    _, part = participants(rewards, mask)
    returns = returns_to_go(rewards, mask, 1.0, part)
    places = [[t for t, k in enumerate(keep) if k and part[row]] for row, keep in enumerate(mask)]
    energy = np.zeros(np.shape(mask))
    for row, ts in enumerate(places):
        total = 0.0
        for t in ts:
            w = 1.0 if weights is None else weights[row][t]
            total += (1 - 2 * np.exp(log_prob[row][t]) + sum_pi_squared[row][t]) * w**2
            energy[row, t] = total
    # slot of a token: what it is matched by
    slot = [{(n if by_token_number else t): t for n, t in enumerate(ts)} for ts in places]
    advantage = returns.copy()
    for rows in members(index, part):
        if len(rows) == 1:
            continue
        ends = sorted((max(slot[row]) + 1 for row in rows), reverse=True)
        for row in rows:
            for s, t in slot[row].items():
                alive = [r for r in rows if s in slot[r]]
                top = sum(returns[r, slot[r][s]] * energy[r, slot[r][s]] for r in alive)
                bottom = sum(energy[r, slot[r][s]] for r in alive)
                beyond = max(slot[row]) + 1 == ends[0] > ends[1] <= s
                advantage[row, t] -= 0.0 if zero_tail and beyond else top / (bottom + 1e-8)
    return advantage, returns
