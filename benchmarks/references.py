# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plain references of the hot functions: the formula as it is written down, one prompt or one column at a time.

Shapes: B trajectories, T response tokens.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor


def rows_of_groups(index: np.ndarray) -> list[list[int]]:
    """The rows of each prompt."""
    groups = defaultdict(list)
    for row, uid in enumerate(index):
        groups[uid].append(row)
    return list(groups.values())


def by_prompt(scores: Tensor, index: np.ndarray, formula: Callable[[Tensor], Tensor]) -> Tensor:
    """`formula` of the scores of each prompt: [B] -> [B]."""
    out = torch.zeros_like(scores)
    for rows in rows_of_groups(index):
        out[rows] = formula(scores[rows])
    return out


def on_tokens(values: Tensor, mask: Tensor) -> Tensor:
    return values.float().unsqueeze(-1) * mask


def best_lead(scores: Tensor) -> Tensor:
    first, second = scores.sort(descending=True).values[:2]
    return torch.where(scores == first, (first - second) / (scores.std() + 1e-6), 0.0)


def mean_of_others(scores: Tensor) -> Tensor:
    return torch.stack([torch.cat([scores[:row], scores[row + 1 :]]).mean() for row in range(len(scores))])


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    kept = values[mask].double()
    return torch.where(mask, (values - kept.mean().float()) / (kept.var() + 1e-8).sqrt().float(), 0.0)


def suffix_by_column(values: Tensor, mask: Tensor, discount: float) -> Tensor:
    """One token at a time from the right, as the recursion is written down."""
    out, running = torch.zeros_like(values), torch.zeros(len(values))
    for t in reversed(range(values.shape[1])):
        running = torch.where(mask[:, t], values[:, t] + discount * running, running)
        out[:, t] = torch.where(mask[:, t], running, 0.0)
    return out


def next_by_column(values: Tensor, mask: Tensor) -> Tensor:
    out, following = torch.zeros_like(values), torch.zeros(len(values))
    for t in reversed(range(values.shape[1])):
        out[:, t] = following
        following = torch.where(mask[:, t], values[:, t], following)
    return out


def gae_by_column(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
    out, running, following = torch.zeros_like(values), torch.zeros(len(values)), torch.zeros(len(values))
    for t in reversed(range(values.shape[1])):
        keep = mask[:, t]
        delta = rewards[:, t] + gamma * following - values[:, t]
        running = torch.where(keep, delta + gamma * lam * running, running)
        following = torch.where(keep, values[:, t], following)
        out[:, t] = running
    return whiten(out, mask)


def token_baseline(rewards: Tensor, mask: Tensor, index: np.ndarray, old: Tensor, square: Tensor) -> Tensor:
    """Return minus the energy-weighted mean return of the group at each position, one prompt at a time."""
    out = torch.zeros_like(rewards)
    for rows in rows_of_groups(index):
        keep = mask[rows]
        returns = torch.where(keep, rewards[rows], 0.0).flip(-1).cumsum(-1).flip(-1) * keep
        energy = torch.where(keep, 1 - 2 * old[rows].exp() + square[rows], 0.0).cumsum(-1) * keep
        out[rows] = (returns - (returns * energy).sum(0) / (energy.sum(0) + 1e-8)) * keep
    return out


def token_baseline_without_gaps(
    rewards: Tensor, mask: Tensor, index: np.ndarray, old: Tensor, square: Tensor
) -> Tensor:
    """The same where only the policy's tokens are counted: each row is packed, and unpacked again."""
    out = torch.zeros_like(rewards)
    for rows in rows_of_groups(index):
        keeps = [mask[row].nonzero().squeeze(-1) for row in rows]
        packed = [
            torch.nn.utils.rnn.pad_sequence([values[row, keep] for row, keep in zip(rows, keeps, strict=True)], True)
            for values in (rewards, mask, old, square)
        ]
        found = token_baseline(packed[0], packed[1], np.zeros(len(rows)), *packed[2:])
        for place, (row, keep) in enumerate(zip(rows, keeps, strict=True)):
            out[row, keep] = found[place, : len(keep)]
    return out


# ---- losses: (log_prob, old_log_prob, advantages, mask) -> loss, the gradient of which is compared ------------------


def token_mean(loss: Tensor, mask: Tensor) -> Tensor:
    return (loss * mask).sum() / mask.sum()


def mean_of_rows(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum(-1) / mask.sum(-1)


def clipped(ratio: Tensor, advantages: Tensor) -> Tensor:
    return torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))


def covariance(log_prob: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    log_prob = log_prob.detach()
    return (advantages - advantages[mask].mean()) * (log_prob - log_prob[mask].mean())


def vanilla(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    loss = clipped((new - old).exp(), advantages)
    return token_mean(torch.where(advantages < 0, torch.minimum(loss, -advantages * 3.0), loss), mask)


def gspo(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    of_row = mean_of_rows(new.detach() - old, mask).unsqueeze(-1)
    return mean_of_rows(clipped((new - new.detach() + of_row).exp(), advantages), mask).mean()


def geo_mean(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    log_ratio, sign = new - old, advantages.sign()
    pessimist = sign * torch.minimum(sign * log_ratio, sign * log_ratio.clamp(-0.2, 0.2))
    return -(mean_of_rows(advantages, mask) * mean_of_rows(pessimist, mask).exp()).mean()


def gpg(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return token_mean(-advantages * new, mask)


def sapo(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    tau = torch.where(advantages > 0, 1.0, 1.05)
    return mean_of_rows(-advantages * torch.sigmoid(tau * ((new - old).exp() - 1)) * 4 / tau, mask).mean()


def cispo(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return token_mean(-(new - old).exp().clamp(0.8, 1.2).detach() * advantages * new, mask)


def clip_cov(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    ratio, cov = (new - old).exp(), covariance(new, advantages, mask)
    free = -advantages * ratio
    dropped = (-advantages * ratio.clamp(0.8, 1.2) <= free) & (cov > 1.0) & (cov < 5.0)
    return token_mean(torch.where(dropped, 0.0, clipped(ratio, advantages)), mask)


def kl_cov(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    number = max(1, int(mask.sum() * 0.01))
    cov = torch.where(mask, covariance(new, advantages, mask), -torch.inf)
    penalized = cov >= cov.flatten().topk(number).values[-1]
    return token_mean(-advantages * (new - old).exp() + torch.where(penalized, 0.1 * (new - old).abs(), 0.0), mask)


def dppo(divergence: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def loss(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        ratio, distance = (new - old).exp(), divergence(new.detach(), old)
        outward = torch.where(advantages > 0, ratio > 1, ratio < 1) & (distance > 0.2)
        surrogate = -advantages * ratio
        surrogate = torch.where(advantages < 0, torch.minimum(surrogate, -advantages * 3.0), surrogate)
        return token_mean(torch.where(outward, 0.0, surrogate), mask)

    return loss


def total_variation(new: Tensor, old: Tensor) -> Tensor:
    return (new.exp() - old.exp()).abs()


def two_way_kl(new: Tensor, old: Tensor) -> Tensor:
    rest = 1 - old.exp()
    return old.exp() * (old - new) + rest * (rest / (1 - new.exp())).log()


def weighted_reinforce(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    weight = (new - old).exp().clamp(max=2.0).detach()
    return token_mean(-weight * advantages * new, mask)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "vanilla": vanilla,
    "gspo": gspo,
    "geo_mean": geo_mean,
    "gpg": gpg,
    "sapo": sapo,
    "cispo": cispo,
    "clip_cov": clip_cov,
    "kl_cov": kl_cov,
    "dppo_tv": dppo(total_variation),
    "dppo_kl": dppo(two_way_kl),
    "bypass_mode": weighted_reinforce,
}


# ---- the rest -------------------------------------------------------------------------------------------------------


def value_loss(predicted: Tensor, returns: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    bounded = torch.minimum(torch.maximum(predicted, values - 0.5), values + 0.5)
    return 0.5 * token_mean(torch.maximum((predicted - returns) ** 2, (bounded - returns) ** 2), mask)


KL: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda log_ratio: log_ratio,
    "abs": lambda log_ratio: log_ratio.abs(),
    "k2": lambda log_ratio: log_ratio**2 / 2,
    "k3": lambda log_ratio: (-log_ratio).exp() - 1 + log_ratio,
}


def first_fit(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Longest first, each into the first part that has room."""
    parts: list[list[int]] = []
    room: list[int] = []
    for item in sorted(range(len(lengths)), key=lambda item: -lengths[item]):
        part = next((part for part, left in enumerate(room) if left >= lengths[item]), len(parts))
        if part == len(parts):
            parts.append([])
            room.append(budget)
        parts[part].append(item)
        room[part] -= lengths[item]
    return parts
