# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is timed: for each hot function a pair of calls, ours and the plain reference, on the same inputs."""

import functools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import references as plain
import torch
from torch import Tensor

from verl.algorithms.advantages import get_adv_estimator_fn
from verl.algorithms.advantages.reweight import compute_pf_ppo_reweight_data
from verl.algorithms.aggregate import agg_loss
from verl.algorithms.batch_balance import (
    get_group_balanced_partitions,
    get_seqlen_balanced_partitions,
    greedy_partition,
)
from verl.algorithms.kl import kl_penalty
from verl.algorithms.log_prob_diff import calculate_debug_metrics
from verl.algorithms.logits import (
    calculate_sum_pi_squared_from_logits,
    entropy_from_logits_with_chunking,
    logprobs_from_logits,
    logprobs_from_logits_naive,
)
from verl.algorithms.micro_batches import prepare_dynamic_batch
from verl.algorithms.policy_losses import get_policy_loss_fn
from verl.algorithms.rollout_correction import compute_offpolicy_metrics
from verl.algorithms.rollout_correction.importance import compute_rollout_correction_weights
from verl.algorithms.rollout_correction.rejection import compute_rollout_rejection_mask
from verl.algorithms.tensor_math import discounted_suffix_sum, masked_mean, masked_var, masked_whiten, next_valid
from verl.algorithms.value_loss import compute_value_loss
from verl.protocol import DataProto
from verl.trainer.ppo.metric_utils import compute_data_metrics
from verl.trainer.ppo.validation_metrics import bootstrap_metric, process_validation_metrics

GROUP = 8
# Logits of so many tokens at a time, as an engine makes them, over a vocabulary that fits in the cache.
TOKENS_OF_LOGITS, VOCABULARY = 2**20, 16

Case = tuple[Callable[[], Any], Callable[[], Any]]


class Inputs:
    """A batch of ragged trajectories: B rows, T response tokens, one reward at the end of each."""

    def __init__(self, samples: int, tokens: int) -> None:
        rng = np.random.default_rng(0)
        self.samples, self.tokens = samples, tokens
        self.lengths = rng.integers(max(1, tokens // 16), tokens + 1, samples)
        self.mask = torch.arange(tokens) < torch.from_numpy(self.lengths).unsqueeze(-1)
        last = torch.from_numpy(self.lengths) - 1
        self.rewards = torch.zeros(samples, tokens)
        self.rewards[torch.arange(samples), last] = torch.rand(samples, generator=torch.Generator().manual_seed(0))
        self.scores = self.rewards.sum(-1).double()
        self.index = np.repeat(np.arange(-(-samples // GROUP)), GROUP)[:samples].astype(str).astype(object)
        self._normal = functools.lru_cache(maxsize=3)(self._draw)

    def _draw(self, seed: int) -> Tensor:
        return torch.randn(self.samples, self.tokens, generator=torch.Generator().manual_seed(seed))

    def normal(self, scale: float = 1.0, seed: int = 1) -> Tensor:
        """A tensor of the caller's own."""
        return self._normal(seed) * scale

    def log_probs(self) -> tuple[Tensor, Tensor]:
        """Of the old policy, never certain, and of one not far from it."""
        old = self._normal(1).abs().neg_().sub_(0.05)
        return old, torch.add(old, self._normal(3), alpha=0.1).clamp_(max=-0.01)


# ---- advantages -----------------------------------------------------------------------------------------------------


def by_prompt(name: str, formula: Callable[[Tensor], Tensor], whiten: bool = False) -> Callable[[Inputs], Case]:
    """An estimator that gives one number for each trajectory, on every token of it."""

    def case(x: Inputs) -> Case:
        estimate = get_adv_estimator_fn(name)

        def reference() -> Tensor:
            spread = plain.on_tokens(plain.by_prompt(x.scores, x.index, formula), x.mask)
            return plain.whiten(spread, x.mask) if whiten else spread

        return lambda: estimate(token_level_rewards=x.rewards, response_mask=x.mask, index=x.index)[0], reference

    return case


def gdpo(x: Inputs) -> Case:
    columns = {key: np.random.default_rng(seed).normal(size=x.samples) for seed, key in enumerate(("a", "b"))}
    config = {"gdpo_reward_keys": ["a", "b"], "gdpo_reward_weights": [1.0, 0.5]}
    estimate = get_adv_estimator_fn("gdpo")

    def reference() -> Tensor:
        def normal(scores: Tensor) -> Tensor:
            return (scores - scores.mean()) / (scores.std() + 1e-6)

        first, second = (plain.by_prompt(torch.from_numpy(columns[key]), x.index, normal) for key in columns)
        return plain.whiten(plain.on_tokens(first + 0.5 * second, x.mask), x.mask)

    return (
        lambda: estimate(x.rewards, x.mask, x.index, config=config, non_tensor_batch=columns)[0],
        reference,
    )


def opo(x: Inputs) -> Case:
    lengths = torch.from_numpy(x.lengths).double()

    def reference() -> Tensor:
        out = x.scores.clone()
        for rows in plain.rows_of_groups(x.index):
            out[rows] -= (lengths[rows] * x.scores[rows]).sum() / lengths[rows].sum()
        return plain.on_tokens(out, x.mask)

    return lambda: get_adv_estimator_fn("opo")(x.rewards, x.mask, x.index)[0], reference


def gpg(x: Inputs) -> Case:
    def reference() -> Tensor:
        scale = x.samples / torch.count_nonzero(x.scores)
        centred = plain.by_prompt(x.scores, x.index, lambda scores: scores - scores.mean())
        return plain.on_tokens(scale * centred, x.mask)

    return lambda: get_adv_estimator_fn("gpg")(x.rewards, x.mask, x.index)[0], reference


def reinforce_plus_plus(x: Inputs) -> Case:
    def reference() -> Tensor:
        return plain.whiten(plain.suffix_by_column(x.rewards, x.mask, 0.999), x.mask)

    estimate = get_adv_estimator_fn("reinforce_plus_plus")
    return lambda: estimate(x.rewards, x.mask, config={"gamma": 0.999})[0], reference


def remax(x: Inputs) -> Case:
    baselines = torch.rand(x.samples, generator=torch.Generator().manual_seed(4))

    def reference() -> Tensor:
        return (x.rewards.flip(-1).cumsum(-1).flip(-1) - baselines.unsqueeze(-1)) * x.mask

    return lambda: get_adv_estimator_fn("remax")(x.rewards, baselines, x.mask)[0], reference


def gae(x: Inputs) -> Case:
    values, estimate = x.normal(), get_adv_estimator_fn("gae")
    return (
        lambda: estimate(x.rewards, values, x.mask, 0.99, 0.95)[0],
        lambda: plain.gae_by_column(x.rewards, values, x.mask, 0.99, 0.95),
    )


def token_baseline(x: Inputs) -> Case:
    old, square = x.normal().abs_().neg_(), x.normal(seed=2).sigmoid_()
    estimate = get_adv_estimator_fn("optimal_token_baseline")
    return (
        lambda: estimate(x.rewards, x.mask, x.index, old_log_probs=old, sum_pi_squared=square, handle_zero_tail=False)[
            0
        ],
        lambda: plain.token_baseline(x.rewards, x.mask, x.index, old, square),
    )


def token_baseline_of_turns(x: Inputs) -> Case:
    old, square = x.normal().abs_().neg_(), x.normal(seed=2).sigmoid_()
    # Eight of each 64 tokens are a tool's.
    mask = x.mask & (torch.arange(x.tokens) % 64 < 56)
    estimate = get_adv_estimator_fn("tir_optimal_token_baseline")
    return (
        lambda: estimate(x.rewards, mask, x.index, old_log_probs=old, sum_pi_squared=square, handle_zero_tail=False)[0],
        lambda: plain.token_baseline_without_gaps(x.rewards, mask, x.index, old, square),
    )


def pf_ppo(x: Inputs) -> Case:
    """Rows drawn by score; both draw with the same numbers."""
    data = DataProto.from_dict({"token_level_scores": x.rewards, "response_mask": x.mask})

    def reference() -> Tensor:
        weights = x.scores.abs() ** 2 + 1e-8
        rows = torch.multinomial(weights, x.samples, True, generator=torch.Generator().manual_seed(5))
        return torch.stack([x.rewards[row] for row in rows]).add_(torch.stack([x.mask[row] for row in rows]))

    def ours() -> Tensor:
        drawn = compute_pf_ppo_reweight_data(data, "pow", 2.0, torch.Generator().manual_seed(5)).batch
        return drawn["token_level_scores"].add_(drawn["response_mask"])

    return ours, reference


# ---- losses ---------------------------------------------------------------------------------------------------------

_LOSS_CONFIG = {
    "policy_loss": {
        # Every token of high covariance, so that nothing is left to chance.
        "clip_cov_ratio": 1.0,
        "kl_cov_ratio": 0.01,
        "rollout_correction": {"loss_type": "reinforce", "rollout_is": "token", "rollout_is_threshold": 2.0},
    }
}


def gradient_in_tokens(x: Inputs, leaf: Tensor, loss: Tensor) -> Tensor:
    """The gradient of a mean, in the size that a single token has."""
    leaf.grad = None
    loss.backward()
    gradient, leaf.grad = leaf.grad, None
    return gradient.mul_(int(x.lengths.sum()))


def policy_loss(name: str) -> Callable[[Inputs], Case]:
    def case(x: Inputs) -> Case:
        (old, new), advantages = x.log_probs(), x.normal(seed=2)
        new.requires_grad_()
        ours, reference = get_policy_loss_fn(name), plain.LOSSES[name]
        return (
            lambda: gradient_in_tokens(x, new, ours(old, new, advantages, x.mask, "token-mean", _LOSS_CONFIG)[0]),
            lambda: gradient_in_tokens(x, new, reference(new, old, advantages, x.mask)),
        )

    return case


def value_loss(x: Inputs) -> Case:
    predicted, returns = x.normal().requires_grad_(), x.normal(seed=2)
    values = predicted.detach() + x.normal(0.5, seed=3)
    return (
        lambda: gradient_in_tokens(x, predicted, compute_value_loss(predicted, returns, values, x.mask, 0.5)[0]),
        lambda: gradient_in_tokens(x, predicted, plain.value_loss(predicted, returns, values, x.mask)),
    )


def kl(name: str) -> Callable[[Inputs], Case]:
    def case(x: Inputs) -> Case:
        old, new = x.log_probs()
        new.requires_grad_()

        def mean(values: Tensor) -> Tensor:
            return gradient_in_tokens(x, new, (values * x.mask).sum() / int(x.lengths.sum()))

        return lambda: mean(kl_penalty(new, old, name)), lambda: mean(plain.KL[name](new - old))

    return case


def aggregation(x: Inputs) -> Case:
    values = x.normal()
    modes = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm")

    def reference() -> Tensor:
        sums = (values * x.mask).sum(-1)
        return torch.stack(
            [sums.sum() / x.mask.sum(), (sums / x.mask.sum(-1)).mean(), sums.sum() / x.samples / x.tokens]
        )

    return lambda: torch.stack([agg_loss(values, x.mask, mode) for mode in modes]), reference


# ---- correction of rollouts -----------------------------------------------------------------------------------------


def importance_of_tokens(x: Inputs) -> Case:
    log_ratio = x.normal(0.1)
    return (
        lambda: compute_rollout_correction_weights(log_ratio, x.mask, "token", 1.1)[0],
        lambda: log_ratio.exp().clamp(max=1.1) * x.mask,
    )


def importance_of_sequences(x: Inputs) -> Case:
    log_ratio = x.normal(0.1)
    return (
        lambda: compute_rollout_correction_weights(log_ratio, x.mask, "sequence", 2.0)[0],
        lambda: (log_ratio * x.mask).sum(-1, keepdim=True).clamp(-20, 20).exp().clamp(max=2.0) * x.mask,
    )


def rejection(x: Inputs) -> Case:
    # Rows that differ in how far they are off, so that few stand at the threshold.
    log_ratio = x.normal(0.1).mul_(torch.linspace(0.5, 1.5, x.samples).unsqueeze(-1))

    def reference() -> Tensor:
        mean = torch.cat(
            [
                plain.mean_of_rows(torch.expm1(rows.double()) - rows, keep)
                for rows, keep in zip(log_ratio.split(64), x.mask.split(64), strict=True)
            ]
        )
        keep = mean <= 0.005
        return x.mask & keep.unsqueeze(-1) & (log_ratio**2 / 2 <= 0.01)

    def ours() -> Tensor:
        return compute_rollout_rejection_mask(log_ratio, x.mask, "seq_mean_k3,token_k2", "0.005,0.01")[0].float()

    return ours, lambda: reference().float()


def mismatch(x: Inputs) -> Case:
    old, rollout = x.log_probs()

    def reference() -> Tensor:
        ratio = (old - rollout)[x.mask].double()
        of_rows = plain.mean_of_rows((rollout - old).double(), x.mask)
        weight = ratio.exp()
        return torch.stack(
            [
                -ratio.mean(),
                (weight - ratio - 1).mean(),
                (2 * ratio).exp().mean() - 1,
                weight.mean() ** 2 / (weight**2).mean(),
                of_rows.exp().mean(),
            ]
        )

    names = ("kl", "k3_kl", "chi2_token", "ess", "ppl_ratio")

    def ours() -> Tensor:
        found = compute_offpolicy_metrics(old, rollout, x.mask)
        return torch.tensor([found[name] for name in names], dtype=torch.float64)

    return ours, reference


def probability_difference(x: Inputs) -> Case:
    old, rollout = x.log_probs()
    batch = DataProto.from_dict({"old_log_probs": old, "rollout_log_probs": rollout, "response_mask": x.mask})
    prefix = "training/rollout_"
    names = [prefix + f"probs_diff_{name}" for name in ("mean", "std", "max")]
    names.append(prefix + "actor_probs_pearson_corr")

    def reference() -> Tensor:
        a, b = old[x.mask].double().exp(), rollout[x.mask].double().exp()
        gap, correlation = (a - b).abs(), torch.corrcoef(torch.stack([a, b]))[0, 1]
        return torch.stack([gap.mean(), gap.std(), gap.max(), correlation])

    def ours() -> Tensor:
        found = calculate_debug_metrics(batch)
        return torch.tensor([found[name] for name in names], dtype=torch.float64)

    return ours, reference


# ---- metrics, masked arithmetic -------------------------------------------------------------------------------------


def data_metrics(x: Inputs) -> Case:
    prompt = torch.ones(x.samples, 4, dtype=torch.bool)
    batch = DataProto.from_dict(
        {
            "responses": x.mask,
            "attention_mask": torch.cat([prompt, x.mask], 1),
            "response_mask": x.mask,
            "token_level_scores": x.rewards,
            "token_level_rewards": x.rewards,
            "advantages": x.normal(),
            "returns": x.normal(seed=2),
            "values": x.normal(seed=3),
        }
    )
    tokens, rows = ("advantages", "returns", "values"), ("score", "rewards")

    def in_numpy() -> Tensor:
        keep, found = x.mask.numpy(), []
        kept = {name: batch.batch[name].numpy()[keep].astype(np.float64) for name in tokens}
        for values in kept.values():
            found += [values.mean(), values.max(), values.min()]
        total = x.rewards.numpy().sum(-1)
        found += [total.mean(), total.max(), total.min()] * 2
        error = kept["returns"] - kept["values"]
        found.append(1 - error.var(ddof=1) / (kept["returns"].var(ddof=1) + 1e-5))
        return torch.tensor(found, dtype=torch.float64)

    names = [f"critic/{name}/{kind}" for name in (*tokens, *rows) for kind in ("mean", "max", "min")]
    names.append("critic/vf_explained_var")

    def ours() -> Tensor:
        found = compute_data_metrics(batch)
        return torch.tensor([found[name] for name in names], dtype=torch.float64)

    return ours, in_numpy


def masked_statistics(x: Inputs) -> Case:
    values = x.normal()

    def reference() -> Tensor:
        kept = values[x.mask].double()
        return torch.stack([kept.mean(), kept.var()])

    return lambda: torch.stack([masked_mean(values, x.mask), masked_var(values, x.mask)]).double(), reference


def whitening(x: Inputs) -> Case:
    values = x.normal(3.0)
    return lambda: masked_whiten(values, x.mask), lambda: plain.whiten(values, x.mask)


def suffix_sum(x: Inputs) -> Case:
    return (
        lambda: discounted_suffix_sum(x.rewards, x.mask, 0.95),
        lambda: plain.suffix_by_column(x.rewards, x.mask, 0.95),
    )


def next_value(x: Inputs) -> Case:
    values, mask = x.normal(), x.mask & (torch.arange(x.tokens) % 64 < 56)
    return lambda: next_valid(values, mask), lambda: plain.next_by_column(values, mask)


def transport(x: Inputs) -> Case:
    """There and back through pickle, padding stripped on the way; the reference pickles the plain tensors."""
    tensors = {"response_mask": x.mask, "log_probs": torch.where(x.mask, x.normal(), 0.0)}
    batch = DataProto.from_dict(tensors)
    return (
        lambda: pickle.loads(pickle.dumps(batch, protocol=5)).batch["log_probs"],
        lambda: pickle.loads(pickle.dumps(tensors, protocol=5))["log_probs"],
    )


# ---- logits ---------------------------------------------------------------------------------------------------------


def from_logits(ours: Callable[..., Tensor], reference: Callable[..., Tensor]) -> Callable[[Inputs], Case]:
    """All tokens of the batch, from one block of logits after another (the same block, with other labels)."""

    def case(x: Inputs) -> Case:
        rows = max(1, TOKENS_OF_LOGITS // x.tokens)
        generator = torch.Generator().manual_seed(6)
        leaf = torch.randn(min(rows, x.samples) * x.tokens, VOCABULARY, generator=generator).requires_grad_()
        labels = torch.randint(VOCABULARY, (x.samples, x.tokens), generator=generator, dtype=torch.int16)

        def run(function: Callable[..., Tensor]) -> Tensor:
            leaf.grad = None
            found = torch.empty(x.samples, x.tokens)
            for first in range(0, x.samples, rows):
                block = labels[first : first + rows]
                # A product, so that the gradient may be written over the logits, as in an engine.
                values = function(leaf[: block.numel()] * 1.0, block.flatten().long())
                if values.requires_grad:
                    values.sum().backward()
                found[first : first + rows] = values.detach().view(block.shape)
            # Both the values and the gradient, in one tensor.
            return found if leaf.grad is None else torch.cat([found.flatten(), leaf.grad.flatten() * rows / x.samples])

        return lambda: run(ours), lambda: run(reference)

    return case


def entropy(logits: Tensor, labels: Tensor) -> Tensor:
    log_prob = logits.log_softmax(-1)
    return -(log_prob.exp() * log_prob).sum(-1)


PER_TOKEN: dict[str, Callable[[Inputs], Case]] = {
    "advantage grpo": by_prompt("grpo", lambda s: (s - s.mean()) / (s.std() + 1e-6)),
    "advantage grpo_passk": by_prompt("grpo_passk", plain.best_lead),
    "advantage gdpo": gdpo,
    "advantage reinforce_plus_plus": reinforce_plus_plus,
    "advantage reinforce_plus_plus_baseline": by_prompt("reinforce_plus_plus_baseline", lambda s: s - s.mean(), True),
    "advantage rloo": by_prompt("rloo", lambda s: s - plain.mean_of_others(s)),
    "advantage opo": opo,
    "advantage gpg": gpg,
    "advantage remax": remax,
    "advantage gae": gae,
    "advantage optimal_token_baseline": token_baseline,
    "advantage tir_optimal_token_baseline": token_baseline_of_turns,
    "PF-PPO rows": pf_ppo,
    **{f"loss {name}": policy_loss(name) for name in plain.LOSSES},
    "value loss": value_loss,
    **{f"KL {name}": kl(name) for name in plain.KL},
    "aggregation": aggregation,
    "importance weights, token": importance_of_tokens,
    "importance weights, sequence": importance_of_sequences,
    "rejection": rejection,
    "mismatch metrics": mismatch,
    "probability difference": probability_difference,
    "data metrics": data_metrics,
    "masked mean and variance": masked_statistics,
    "whitening": whitening,
    "discounted return": suffix_sum,
    "next valid": next_value,
    "DataProto pickled and back": transport,
    "log-probs": from_logits(logprobs_from_logits, logprobs_from_logits_naive),
    "entropy": from_logits(lambda logits, labels: entropy_from_logits_with_chunking(logits), entropy),
    "sum of squared probabilities": from_logits(
        lambda logits, labels: calculate_sum_pi_squared_from_logits(logits.detach()),
        lambda logits, labels: logits.detach().softmax(-1).square().sum(-1),
    ),
}


# ---- of the rows' lengths -------------------------------------------------------------------------------------------


def spread(parts: list[list[int]], lengths: list[int]) -> int:
    sums = [sum(lengths[item] for item in part) for part in parts]
    if sorted(item for part in parts for item in part) != list(range(len(lengths))):
        raise AssertionError("a sample is missing, or is there twice")
    return max(sums) - min(sums)


def balance(x: Inputs, parts: int) -> tuple[Case, Callable[[], dict[str, int]]]:
    """The differencing method against longest-first; `spread` is the largest minus the smallest sum."""
    lengths = x.lengths.tolist()
    ours, reference = (
        functools.partial(split, lengths, parts, True) for split in (get_seqlen_balanced_partitions, greedy_partition)
    )
    return (ours, reference), lambda: {
        "spread": spread(ours(), lengths),
        "reference_spread": spread(reference(), lengths),
    }


def balance_groups(x: Inputs, parts: int) -> tuple[Case, Callable[[], dict[str, int]]]:
    """Prompts stay together; the reference deals whole prompts out in turn."""
    lengths, uids = x.lengths.tolist(), x.index.tolist()

    def in_turn() -> list[list[int]]:
        groups = plain.rows_of_groups(x.index)
        return [[row for group in groups[part::parts] for row in group] for part in range(parts)]

    ours = functools.partial(get_group_balanced_partitions, lengths, uids, parts)
    return (ours, in_turn), lambda: {
        "spread": spread(ours(), lengths),
        "reference_spread": spread(in_turn(), lengths),
    }


def micro_batches(x: Inputs) -> tuple[Case, Callable[[], dict[str, int]]]:
    """Of one rank's rows under a cap of two full rows, against first fit; the least number that the cap allows."""
    mask, lengths, cap = x.mask[::GROUP].long(), x.lengths[::GROUP].tolist(), 2 * x.tokens
    data = DataProto.from_dict({"attention_mask": mask})

    def ours() -> list[list[int]]:
        return prepare_dynamic_batch(data, cap)[1]

    def facts() -> dict[str, int]:
        found, simple = ours(), plain.first_fit(lengths, cap)
        for parts in (found, simple):
            spread(parts, lengths)
            if max(sum(lengths[row] for row in part) for part in parts) > cap:
                raise AssertionError("a micro-batch is above the cap")
        return {"parts": len(found), "reference_parts": len(simple), "least": -(-sum(lengths) // cap)}

    return (ours, lambda: plain.first_fit(lengths, cap)), facts


PER_LENGTH: dict[str, Callable[[Inputs], tuple[Case, Callable[[], dict[str, int]]]]] = {
    "balance over 8 parts": lambda x: balance(x, 8),
    "balance over 256 parts": lambda x: balance(x, min(256, x.samples)),
    "balance of prompts over 8 parts": lambda x: balance_groups(x, min(8, x.samples // GROUP)),
    "dynamic micro-batches": micro_batches,
}


def validation(samples: int) -> Case:
    rng = np.random.default_rng(0)
    scores, prompts = rng.random(samples).tolist(), np.arange(samples) // GROUP

    def one_draw_at_a_time() -> Tensor:
        found = []
        for prompt in range(samples // GROUP):
            mine = scores[prompt * GROUP : (prompt + 1) * GROUP]
            found.append([bootstrap_metric(mine, n, [max, min]) for n in (2, 4, GROUP)][-1][0][0])
        return torch.tensor(float(np.mean(found)))

    def ours() -> Tensor:
        found = process_validation_metrics(["s"] * samples, prompts.tolist(), {"reward": scores})
        return torch.tensor(found["s"]["reward"][f"best@{GROUP}/mean"])

    return ours, one_draw_at_a_time
