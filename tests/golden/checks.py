# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Each production module against the reference formulas, on batches that have every awkward row.

A check takes the module as an argument, so that it can be given a mutated copy (tests/algorithms/test_mutations.py).
"""

import itertools
import math

import golden_advantages as ga
import golden_correction as gc
import golden_losses as gl
import numpy as np
import torch
from checks_balance import BALANCE_CHECKS
from checks_metrics import METRIC_CHECKS

NAN = float("nan")


class Batch:
    """Groups of 1 to 5 rows; gaps in masks, an empty row, an unscorable row, equal rewards, garbage outside."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.index = np.array(["a", "b", "a", "c", "b", "d", "a", "b", "d", "e", "e", "a", "a", "b", "b"], dtype=object)
        rows, width = len(self.index), 7
        lengths = rng.integers(3, width + 1, rows)
        lengths[:2] = width
        mask = (np.arange(width) < lengths[:, None]) & (rng.random((rows, width)) < 0.8)
        mask[:, 0] = True
        mask[2] = False
        # One row alone in its group; a group whose longest row outlives the others.
        mask[5], mask[8] = np.arange(width) < width, np.arange(width) < 3
        mask[11] = np.arange(width) < 1
        self.mask = mask.astype(np.float64)
        rewards = rng.normal(size=mask.shape) * (rng.random(mask.shape) < 0.4)
        rewards[9:11] = 0.0
        rewards[9:11, 0] = 0.7
        rewards[7] = np.where(mask[7], NAN, 0.0)
        garbage = np.where(rng.random(mask.shape) < 0.5, NAN, np.inf)
        self.rewards = np.where(mask, rewards, garbage)
        self.values = np.where(mask, rng.normal(size=mask.shape), garbage)
        self.adv = np.where(mask, rng.normal(size=mask.shape) * (rng.random(mask.shape) < 0.9), garbage)
        self.old = np.where(mask, -rng.gamma(1.0, 1.0, mask.shape), garbage)
        drift = rng.normal(size=mask.shape) * 0.6 + rng.normal(size=(rows, 1)) * 0.4
        self.new = np.where(mask, np.minimum(np.where(mask, self.old, 0.0) + drift, -1e-3), garbage)
        self.difference = np.where(mask, np.where(mask, self.new, 0.0) - np.where(mask, self.old, 0.0), garbage)
        self.weights = np.where(mask, rng.uniform(0.2, 2.0, mask.shape), garbage)
        self.sum_pi2 = np.where(mask, rng.uniform(0.05, 0.9, mask.shape), garbage)
        self.baselines = rng.normal(size=rows)
        self.baselines[4] = NAN
        self.columns = [rng.normal(size=rows).tolist(), rng.normal(size=rows).tolist()]
        self.columns[1][0] = None


def tensor(array):
    return torch.tensor(np.asarray(array, dtype=np.float64))


def same(got, want, what=""):
    got = got.detach().numpy() if isinstance(got, torch.Tensor) else np.asarray(got, dtype=np.float64)
    np.testing.assert_allclose(got, np.asarray(want, dtype=np.float64), rtol=1e-7, atol=1e-9, err_msg=what)


def same_metrics(got, want):
    assert set(want) <= set(got), set(want) - set(got)
    for name, value in want.items():
        same(got[name], value, name)


def batches():
    return [Batch(seed) for seed in range(3)]


# --- tensor_math, groups -------------------------------------------------------------------------------------------


def check_masked(m):
    for b in batches():
        values, mask = tensor(b.values), tensor(b.mask)
        kept = b.values[b.mask.astype(bool)]
        same(m.masked_sum(values, mask), kept.sum())
        same(m.masked_mean(values, mask), kept.mean())
        same(m.masked_var(values, mask), kept.var(ddof=1))
        same(m.masked_var(values, mask, unbiased=False), kept.var())
        same(m.masked_whiten(values, mask), ga.whiten(b.values, b.mask))
        shifted = ga.whiten(b.values, b.mask) + kept.mean() * b.mask
        same(m.masked_whiten(values, mask, shift_mean=False), shifted)
        rows = [[v for v, k in zip(line, keep, strict=True) if k] for line, keep in zip(b.values, b.mask, strict=True)]
        same(m.masked_sum(values, mask, -1), [sum(row) for row in rows])
        same(m.masked_mean(values, mask.bool(), -1), [np.mean(row) if row else 0.0 for row in rows])
        fractional = tensor(b.mask * np.linspace(0.2, 1.0, b.mask.shape[1]))
        same(m.masked_mean(values, fractional), np.average(kept, weights=fractional.numpy()[b.mask.astype(bool)]))
        for function in (m.masked_var, m.masked_whiten):
            leaf = values.clone().requires_grad_()
            (function(leaf, mask) * mask).sum().backward()
            assert torch.isfinite(leaf.grad).all()
    one = torch.tensor([3.0, NAN]), torch.tensor([1, 0])
    same(m.masked_whiten(*one), [3.0, 0.0])
    same(m.masked_var(*one), 0.0)
    same(m.masked_whiten(one[0], torch.zeros(2)), [0.0, 0.0])
    same(m.masked_var(torch.tensor([1.0, 4.0]), torch.ones(2)), 4.5)
    same(
        m.masked_whiten(torch.tensor([1e-4, 2e-4], dtype=torch.float64), torch.ones(2)),
        ga.whiten(np.array([1e-4, 2e-4]), np.ones(2)),
    )
    assert m.mask_total(torch.ones(1000, dtype=torch.bfloat16), torch.bfloat16).item() == 1000
    assert m.mask_total(torch.ones(1000, 2, dtype=torch.bfloat16), torch.bfloat16, 0).tolist() == [1000, 1000]
    assert m.mask_total(torch.ones(3), torch.float64).dtype == torch.float64
    same(m.divide(torch.tensor([2.0, 3.0]), torch.tensor([4.0, 0.0])), [0.5, 3.0])
    same(m.clip_by_value(tensor([0.0, 2.0, 5.0]), tensor([1.0, 1.0, 4.0]), tensor([3.0, 3.0, 3.0])), [1.0, 2.0, 3.0])
    model = torch.nn.Linear(2, 2)
    same(m.compute_grad_norm(model), 0.0)
    (model.weight.sum() * 3 + model.bias.sum() * 4).backward()
    same(m.compute_grad_norm(model), math.sqrt(4 * 9 + 2 * 16))


def check_suffix_sums(m):
    for b, discount in itertools.product(batches(), (1.0, 0.9, 0.0)):
        part = [True] * len(b.mask)
        values = np.where(b.mask > 0, b.values, NAN)
        same(
            m.discounted_suffix_sum(tensor(values), tensor(b.mask), discount),
            ga.returns_to_go(values, b.mask, discount, part),
        )
        row = slice(0, 1)
        same(
            m.discounted_suffix_sum(tensor(values[row]), tensor(b.mask[row]), discount),
            ga.returns_to_go(values[row], b.mask[row], discount, part),
        )
        after = np.zeros_like(b.mask)
        for row, keep in enumerate(b.mask):
            following = 0.0
            for t in reversed(range(len(keep))):
                after[row, t] = following
                following = values[row, t] if keep[t] else following
        same(m.next_valid(tensor(values), tensor(b.mask)), after)
        # The forms that a device takes.
        same(m._next_by_doubling(tensor(values), tensor(b.mask)), after)
        x_TB, decay_TB = tensor(np.where(b.mask > 0, values, 0.0).T), tensor(np.where(b.mask > 0, discount, 1.0).T)
        want = ga.returns_to_go(values, b.mask, discount, part)
        same(m._scan_by_doubling(x_TB, decay_TB).numpy().T * b.mask, want)


def check_groups(m):
    for b in batches():
        scores, part = ga.participants(b.rewards, b.mask)
        scored = m.score_rows(tensor(b.rewards), tensor(b.mask))
        same(scored.score_B, scores)
        assert scored.valid_B.tolist() == part
        same(scored.mask_BT.double(), ga.effective_mask(b.mask, part))
        for index in (b.index, b.index.tolist(), b.index.astype(str), torch.tensor([ord(i) for i in b.index])):
            groups = m.Groups(index, scored.valid_B)
            assert groups.number == 5
            for row in range(len(part)):
                rows = [r for r in range(len(part)) if part[r] and b.index[r] == b.index[row]]
                mine = np.array([scores[r] for r in rows])
                same(groups.size_B[row], len(rows))
                same(groups.sum(scored.score_B)[row], mine.sum())
                same(groups.mean(scored.score_B)[row], mine.mean() if len(rows) else 0.0)
                same(groups.std(scored.score_B)[row], mine.std(ddof=1) if len(rows) > 1 else 0.0)
                same(groups.extreme(scored.score_B, True)[row], mine.max() if len(rows) else -np.inf)
                same(groups.extreme(scored.score_B, False)[row], mine.min() if len(rows) else np.inf)
                same(groups.sum(tensor(b.mask))[row], b.mask[rows].sum(0))
    equal = torch.full((3,), 0.1, dtype=torch.float64)
    groups = m.Groups(np.zeros(3, dtype=int), torch.ones(3, dtype=torch.bool))
    assert (groups.mean(equal) == equal).all() and (groups.std(equal) == 0).all()
    lost = m.Groups(np.array([0, 0, 1]), torch.tensor([True, True, False]))
    same(lost.mean(tensor([1.0, 2.0, 5.0])), [1.5, 1.5, 0.0])
    assert m.group_ids(np.array([7, 3, 7])).tolist() == [1, 0, 1]
    assert m.group_ids([None, "x", None]).tolist() == [0, 1, 0]
    assert m.Groups(np.zeros(0), torch.zeros(0, dtype=torch.bool)).number == 0
    for bad in (np.zeros((2, 2)), np.zeros(3)):
        refused(lambda bad=bad: m.Groups(bad, torch.ones(2, dtype=torch.bool)))
    assert not m.score_rows(torch.tensor([[torch.inf]]), torch.ones(1, 1)).valid_B.item()


def refused(call):
    """The call must be refused by an error of ours, not by an accident."""
    try:
        call()
    except ValueError as error:
        assert hasattr(error, "what"), error
    else:
        raise AssertionError("accepted")


# --- advantages ----------------------------------------------------------------------------------------------------


def check_grpo(m):
    for b, by_std in itertools.product(batches(), (True, False)):
        got, returns = m.compute_grpo_outcome_advantage(
            tensor(b.rewards), tensor(b.mask), b.index, 1e-3, norm_adv_by_std_in_grpo=by_std
        )
        same(got, ga.grpo(b.rewards, b.mask, b.index, 1e-3, by_std))
        same(returns, got.numpy())
        got, _ = m.compute_grpo_vectorized_outcome_advantage(
            tensor(b.rewards), tensor(b.mask), b.index, norm_adv_by_std_in_grpo=by_std
        )
        same(got, ga.grpo(b.rewards, b.mask, b.index, 1e-6, by_std))
    got, _ = m.compute_grpo_outcome_advantage(tensor(b.rewards).half(), tensor(b.mask), b.index)
    assert got.dtype == torch.half
    whole = m.compute_grpo_outcome_advantage(torch.tensor([[1], [0]]), torch.ones(2, 1), np.zeros(2))[0]
    assert whole.dtype == torch.float32 and whole[0, 0] > 0.7


def check_passk(m):
    for b, by_std in itertools.product(batches(), (True, False)):
        got, _ = m.compute_grpo_passk_outcome_advantage(
            tensor(b.rewards), tensor(b.mask), b.index, 1e-3, norm_adv_by_std_in_grpo=by_std
        )
        same(got, ga.passk(b.rewards, b.mask, b.index, 1e-3, by_std))
    got, _ = m.compute_grpo_passk_outcome_advantage(tensor([[0.0], [2.0], [2.0], [1.0]]), torch.ones(4, 1), np.zeros(4))
    same(got, np.zeros((4, 1)))
    got, _ = m.compute_grpo_passk_outcome_advantage(tensor([[0.0], [3.0], [-5.0]]), torch.ones(3, 1), np.zeros(3), 1e-2)
    same(got, [[0.0], [3.0 / (np.std([0, 3, -5], ddof=1) + 1e-2)], [0.0]])
    refused(lambda: m.compute_grpo_passk_outcome_advantage(tensor([[1.0], [2.0]]), torch.ones(2, 1), np.array([0, 1])))
    empty = m.compute_grpo_passk_outcome_advantage(torch.zeros(0, 3), torch.zeros(0, 3), np.zeros(0))[0]
    assert empty.shape == (0, 3)


def check_gdpo(m):
    for b in batches():
        config = {"gdpo_reward_keys": ["x", "y"], "gdpo_reward_weights": [0.5, 2.0]}
        columns = {"x": b.columns[0], "y": b.columns[1]}
        known = [[NAN if v is None else v for v in column] for column in b.columns]
        got, returns = m.compute_gdpo_outcome_advantage(
            tensor(b.rewards), tensor(b.mask), b.index, 1e-3, config=config, non_tensor_batch=columns
        )
        same(got, ga.gdpo(b.rewards, b.mask, b.index, known, [0.5, 2.0], 1e-3))
        same(returns, got.numpy())
        got, _ = m.compute_gdpo_outcome_advantage(
            tensor(b.rewards),
            tensor(b.mask),
            b.index,
            config={"gdpo_reward_keys": ["x", "y"]},
            non_tensor_batch=columns,
        )
        same(got, ga.gdpo(b.rewards, b.mask, b.index, known, [1.0, 1.0]))
    bad = [({}, columns), ({"gdpo_reward_keys": ["z"]}, columns), ({"gdpo_reward_keys": ["x"]}, None)]
    bad.append(({"gdpo_reward_keys": ["x"], "gdpo_reward_weights": [1.0, 2.0]}, columns))
    for config, given in bad:
        refused(
            lambda config=config, given=given: m.compute_gdpo_outcome_advantage(
                tensor(b.rewards), tensor(b.mask), b.index, config=config, non_tensor_batch=given
            )
        )


def check_gae(m):
    for b, (gamma, lam) in itertools.product(batches(), ((1.0, 1.0), (0.9, 0.8), (1.0, 0.95))):
        args = tensor(b.rewards), tensor(b.values), tensor(b.mask)
        got, returns = m.compute_gae_advantage_return(*args, gamma, lam)
        want, want_returns = ga.gae(b.rewards, b.values, b.mask, gamma, lam)
        same(got, want)
        same(returns, want_returns)


def check_reinforce(m):
    for b in batches():
        rewards, mask = tensor(b.rewards), tensor(b.mask)
        for config, gamma in (({"gamma": 0.9}, 0.9), (None, 1.0)):
            got, returns = m.compute_reinforce_plus_plus_outcome_advantage(rewards, mask, config=config)
            want, want_returns = ga.reinforce_plus_plus(b.rewards, b.mask, gamma)
            same(got, want)
            same(returns, want_returns)
        got, returns = m.compute_reinforce_plus_plus_baseline_outcome_advantage(rewards, mask, b.index)
        same(got, ga.reinforce_plus_plus_baseline(b.rewards, b.mask, b.index))
        same(returns, got.numpy())
        for rloo in (m.compute_rloo_outcome_advantage, m.compute_rloo_vectorized_outcome_advantage):
            same(rloo(rewards, mask, b.index)[0], ga.rloo(b.rewards, b.mask, b.index))
        same(m.compute_opo_outcome_advantage(rewards, mask, b.index)[0], ga.opo(b.rewards, b.mask, b.index))
        same(m.compute_gpg_outcome_advantage(rewards, mask, b.index)[0], ga.gpg(b.rewards, b.mask, b.index))
        got, _ = m.compute_gpg_outcome_advantage(rewards, mask, b.index, f_norm=2.0, alpha=3.0)
        same(got, ga.gpg(b.rewards, b.mask, b.index, 2.0, 3.0))
        got, returns = m.compute_remax_outcome_advantage(rewards, tensor(b.baselines), mask)
        want, want_returns = ga.remax(b.rewards, b.baselines, b.mask)
        same(got, want)
        same(returns, want_returns)
    single = m.compute_gpg_outcome_advantage(tensor([[1.0], [0.0]]), torch.ones(2, 1), np.zeros(2))[0]
    # Three of seven have a reward; the quotient of two counts is not rounded to float32.
    seven, _ = m.compute_gpg_outcome_advantage(tensor([[v] for v in (1, 1, 1, 0, 0, 0, 0)]), torch.ones(7, 1), [0] * 7)
    np.testing.assert_allclose(seven[0].item(), 7 / 3 * 4 / 7, rtol=1e-14)
    same(single, [[1.0], [-1.0]])
    zero = m.compute_gpg_outcome_advantage(torch.zeros(2, 1), torch.ones(2, 1), np.zeros(2))[0]
    same(zero, np.zeros((2, 1)))


def check_optimal_baseline(m):
    for b, weighted, zero_tail, turns in itertools.product(batches(), (True, False), (True, False), (True, False)):
        function = (
            m.compute_multi_turn_optimal_token_baseline_advantage
            if turns
            else m.compute_optimal_token_baseline_advantage
        )
        got, returns = function(
            tensor(b.rewards),
            tensor(b.mask),
            b.index,
            old_log_probs=tensor(b.old),
            sum_pi_squared=tensor(b.sum_pi2),
            rollout_is_weights=tensor(b.weights) if weighted else None,
            handle_zero_tail=zero_tail,
        )
        want, want_returns = ga.optimal_baseline(
            b.rewards, b.mask, b.index, b.old, b.sum_pi2, b.weights if weighted else None, zero_tail, turns
        )
        same(got, want)
        same(returns, want_returns)
    # By default the tail that no sibling reaches keeps its return.
    mask = tensor([[1, 1], [1, 0]])
    half = torch.full((2, 2), 0.5, dtype=torch.float64)
    got, _ = function(tensor([[0, 1.0], [0, 0]]), mask, np.zeros(2), half.log(), half)
    same(got[0, 1], 1.0)
    sure = torch.zeros(2, 2, dtype=torch.float64)
    got, _ = function(
        tensor([[0, 1.0], [0, 0]]), mask, np.zeros(2), sure, torch.ones_like(sure), handle_zero_tail=False
    )
    same(got[0], [1.0, 1.0])


# --- losses --------------------------------------------------------------------------------------------------------

CONFIG = {
    "clip_ratio": 0.2,
    "clip_ratio_low": 0.2,
    "clip_ratio_high": 0.28,
    "clip_ratio_c": 1.9,
    "tau_pos": 1.1,
    "tau_neg": 1.4,
    "policy_loss": {
        "clip_cov_ratio": 1.0,
        "clip_cov_lb": 0.1,
        "clip_cov_ub": 1.5,
        "kl_cov_ratio": 0.2,
        "ppo_kl_coef": 0.3,
    },
}
MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")
COUNTS = {"dp_size": 2, "batch_num_tokens": 77, "global_batch_size": 13}


def numeric_gradient(function, new, mask):
    """Central differences of `function(new)` at the masked places."""
    gradient = np.zeros(np.shape(mask))
    for i, t in gl.tokens(mask):
        up, down = new.copy(), new.copy()
        up[i, t] += 1e-6
        down[i, t] -= 1e-6
        gradient[i, t] = (function(up) - function(down)) / 2e-6
    return gradient


def check_policy_loss(function, golden, mode="seq-mean-token-sum-norm", seeds=3):
    for seed in range(seeds):
        b = Batch(seed)
        weights = b.weights if seed == 0 else None
        given = None if weights is None else tensor(weights).requires_grad_()
        counts = COUNTS | {"loss_scale_factor": 5} if seed == 1 else {}
        new = tensor(b.new).requires_grad_()
        loss, metrics = function(
            tensor(b.old),
            new,
            tensor(b.adv),
            tensor(b.mask),
            loss_agg_mode=mode,
            config=CONFIG | {"global_batch_info": counts},
            rollout_is_weights=given,
        )
        args = b.adv, b.mask, b.new, CONFIG, weights, mode
        want, want_metrics = golden(b.old, b.new, *args, **counts)
        same(loss, want)
        same_metrics(metrics, want_metrics)
        loss.backward()
        assert given is None or given.grad is None
        if seed == 0:
            gradient = numeric_gradient(
                lambda x, args=args, b=b, counts=counts: golden(b.old, x, *args, **counts)[0], b.new, b.mask
            )
            np.testing.assert_allclose(new.grad.numpy(), gradient, rtol=1e-5, atol=1e-7)


def check_ppo(m):
    check_policy_loss(m.compute_policy_loss_vanilla, gl.ppo)
    b = Batch(1)
    args = tensor(b.old), tensor(b.new), tensor(b.adv), tensor(b.mask)
    for config in ({"clip_ratio": 0.3}, {}):
        both = config.get("clip_ratio", 0.2)
        full = {"clip_ratio_low": both, "clip_ratio_high": both, "clip_ratio_c": 3.0}
        loss, _ = m.compute_policy_loss_vanilla(*args, config=config)
        same(loss, gl.ppo(b.old, b.new, b.adv, b.mask, b.new, full)[0])
    capped = m.compute_policy_loss_vanilla(
        torch.zeros(1, 1) - 9, torch.zeros(1, 1), -torch.ones(1, 1), torch.ones(1, 1), config={}
    )
    same(capped[0], 3.0)
    refused(lambda: m.compute_policy_loss_vanilla(*args, config={"clip_ratio_c": 1.0}))
    found = m.compute_policy_loss(
        *args, cliprange_low=0.2, cliprange_high=0.28, clip_ratio_c=1.9, loss_agg_mode="seq-mean-token-mean"
    )
    want, metrics = gl.ppo(b.old, b.new, b.adv, b.mask, b.new, CONFIG, mode="seq-mean-token-mean")
    for got, value in zip(found, (want, *metrics.values()), strict=True):
        np.testing.assert_allclose(got.item(), value, rtol=1e-6)
    same(m.compute_policy_loss(*args, cliprange=0.3)[0], gl.ppo(b.old, b.new, b.adv, b.mask, b.new, full_range(0.3))[0])
    same(m.compute_entropy_loss(torch.zeros(2, 3, 4), torch.ones(2, 3)), math.log(4))
    same(m.compute_entropy_loss(torch.zeros(2, 3, 4), torch.ones(2, 3), "token-sum"), 6 * math.log(4))


def full_range(both):
    return {"clip_ratio_low": both, "clip_ratio_high": both, "clip_ratio_c": 3.0}


def check_sequence(m):
    check_policy_loss(m.compute_policy_loss_gspo, gl.gspo)
    check_policy_loss(m.compute_policy_loss_geo_mean, gl.gmpo)
    one = torch.ones(1, 1)
    same(
        m.compute_policy_loss_geo_mean(-one, -one, one, one, config={}, rollout_is_weights=0 * one)[0],
        0.0,
    )


def check_trust_region(m):
    check_policy_loss(m.compute_policy_loss_dppo_tv, gl.dppo_tv)
    check_policy_loss(m.compute_policy_loss_dppo_kl, gl.dppo_kl)
    certain = torch.tensor([[0.0, -1.0, 0.0]])
    for loss in (m.compute_policy_loss_dppo_tv, m.compute_policy_loss_dppo_kl):
        value, metrics = loss(
            certain, torch.tensor([[0.0, 0.0, -1.0]]), torch.tensor([[1.0, 1.0, -1.0]]), torch.ones(1, 3), config={}
        )
        same(value, -1 / 3)
        same(metrics["actor/pg_clipfrac"], np.float32(2 / 3))
    rounded = torch.tensor([[1e-7]])
    _, metrics = m.compute_policy_loss_dppo_kl(
        -torch.ones(1, 1), rounded, torch.ones(1, 1), torch.ones(1, 1), config={}
    )
    assert metrics["actor/pg_clipfrac"] == 1.0
    # Without a setting of its own the cap is 3, for A < 0 only.
    low, high = torch.full((1, 2), -9.0), torch.full((1, 2), -7.0)
    value, metrics = loss(low, high, torch.tensor([[-1.0, 1.0]]), torch.ones(1, 2), config={})
    np.testing.assert_allclose(value.item(), (3 - math.exp(2)) / 2, rtol=1e-6)
    same(metrics["actor/pg_clipfrac_lower"], 0.5)


def check_soft(m):
    check_policy_loss(m.compute_policy_loss_sapo, gl.sapo)
    check_policy_loss(m.compute_policy_loss_cispo, gl.cispo)
    b = Batch(1)
    got, _ = m.compute_policy_loss_sapo(tensor(b.old), tensor(b.new), tensor(b.adv), tensor(b.mask), config={})
    same(got, gl.sapo(b.old, b.new, b.adv, b.mask, b.new, {"tau_pos": 1.0, "tau_neg": 1.05})[0])


def check_covariance(m):
    check_policy_loss(m.compute_policy_loss_clip_cov, gl.clip_cov)
    check_policy_loss(m.compute_policy_loss_kl_cov, gl.kl_cov)
    b = Batch(2)
    args = tensor(b.old), tensor(b.new), tensor(b.adv), tensor(b.mask)
    total = b.mask.sum()
    for ratio, count in ((1e-9, 1), (2.5 / total, 2)):
        settings = {"clip_cov_ratio": ratio, "clip_cov_lb": -100, "clip_cov_ub": 100}
        _, metrics = m.compute_policy_loss_clip_cov(*args, config={"policy_loss": settings})
        np.testing.assert_allclose(metrics["actor/pg_clipfrac"] * total, count, rtol=1e-5)
    defaults = {"clip_cov_lb": 1.0, "clip_cov_ub": 5.0, "kl_cov_ratio": 2e-4, "ppo_kl_coef": 0.1}
    wide = Batch(0)
    # Advantages wide enough that some covariance lies below 1, between 1 and 5, and above 5.
    wide.adv = wide.adv * 3
    cov = list(gl.covariance(wide.adv, wide.new, wide.mask).values())
    assert min(cov) < 1 < 5 < max(cov) and any(5 < value < 6 for value in cov)
    args = tensor(wide.old), tensor(wide.new), tensor(wide.adv), tensor(wide.mask)
    config = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "policy_loss": defaults}
    got, _ = m.compute_policy_loss_kl_cov(*args, config={})
    same(got, gl.kl_cov(wide.old, wide.new, wide.adv, wide.mask, wide.new, config)[0])
    got, _ = m.compute_policy_loss_clip_cov(*args, config={"policy_loss": {"clip_cov_ratio": 1.0}})
    same(got, gl.clip_cov(wide.old, wide.new, wide.adv, wide.mask, wide.new, config)[0])
    _, metrics = m.compute_policy_loss_clip_cov(*args, config={})
    np.testing.assert_allclose(metrics["actor/pg_clipfrac"] * wide.mask.sum(), 1, rtol=1e-5)
    # A share of 0 penalises nothing, the smallest other share one token.
    for ratio, tokens in ((0.0, 0), (1e-9, 1)):
        got, _ = m.compute_policy_loss_kl_cov(*args, "token-sum", {"policy_loss": {"kl_cov_ratio": ratio}})
        penalty = got - m.compute_policy_loss_kl_cov(*args, "token-sum", {"policy_loss": {"ppo_kl_coef": 0.0}})[0]
        assert int(penalty > 1e-3) == tokens
    nothing = torch.zeros(1, 2)
    for loss in (m.compute_policy_loss_kl_cov, m.compute_policy_loss_clip_cov):
        same(loss(nothing, nothing, nothing, nothing, config={})[0], 0.0)


def check_reinforce_loss(m):
    check_policy_loss(m.compute_policy_loss_gpg, gl.policy_gradient)
    check_policy_loss(m.compute_policy_loss_reinforce, gl.reinforce)
    b = Batch(1)
    got, _ = m.compute_policy_loss_reinforce(tensor(b.old), tensor(b.new), tensor(b.adv), tensor(b.mask))
    same(got, gl.reinforce(b.old, b.new, b.adv, b.mask, b.new, {}, mode="seq-mean-token-sum")[0])


def check_bypass(m):
    for seed, loss_type, golden in ((0, "ppo_clip", gl.ppo), (1, "reinforce", gl.reinforce)):
        b = Batch(seed)
        correction = {"rollout_is": "token", "rollout_is_threshold": 1.5, "rollout_rs": "token_k2"}
        correction |= {"rollout_rs_threshold": 0.3, "loss_type": loss_type}
        config = CONFIG | {"policy_loss": {"rollout_correction": correction}}
        new = tensor(b.new).requires_grad_()
        loss, metrics = m.compute_policy_loss_bypass_mode(
            tensor(b.old), new, tensor(b.adv), tensor(b.mask), "seq-mean-token-sum", config
        )
        difference = b.difference
        kept, rs_metrics = gc.rejection(difference, b.mask, "token_k2", upper=0.3)
        weights, is_metrics = gc.importance(difference, b.mask, "token", 1.5)
        used = weights if loss_type == "reinforce" else None
        want, pg_metrics = golden(b.old, b.new, b.adv, kept, b.new, CONFIG, used, "seq-mean-token-sum")
        same(loss, want)
        expected = rs_metrics | is_metrics | gc.diagnostics(b.new, b.old, b.mask)
        same_metrics(metrics, pg_metrics | {"rollout_corr/" + name: value for name, value in expected.items()})
        loss.backward()
        gradient = numeric_gradient(
            lambda x, b=b, kept=kept, used=used, golden=golden: golden(
                b.old, x, b.adv, kept, b.new, CONFIG, used, "seq-mean-token-sum"
            )[0],
            b.new,
            kept,
        )
        np.testing.assert_allclose(new.grad.numpy(), gradient, rtol=1e-5, atol=1e-7)
    args = tensor(b.old), tensor(b.new), tensor(b.adv), tensor(b.mask)
    plain, _ = m.compute_policy_loss_bypass_mode(*args, config=CONFIG | {"policy_loss": {"rollout_correction": {}}})
    same(plain, gl.ppo(b.old, b.new, b.adv, b.mask, b.new, CONFIG)[0])
    refused(lambda: m.compute_policy_loss_bypass_mode(*args, config={}))
    odd = {"policy_loss": {"rollout_correction": {"loss_type": "odd"}}}
    refused(lambda: m.compute_policy_loss_bypass_mode(*args, config=odd))
    refused(lambda: m.compute_policy_loss_bypass_mode(*args, config=config, rollout_is_weights=args[0]))


def check_registry(m):
    b = Batch(0)
    x = m.prepare(tensor(b.old), tensor(b.new), tensor(b.adv), tensor(b.mask))
    same(x.log_ratio, np.where(b.mask > 0, b.difference, 0.0))
    same(x.ratio, np.exp(np.where(b.mask > 0, b.difference, 0.0)))
    same(x.advantages, np.where(b.mask > 0, b.adv, 0.0))
    same(x.log_prob, np.where(b.mask > 0, b.new, 0.0))
    same(x.old_log_prob, np.where(b.mask > 0, b.old, 0.0))
    same(x.ppo_kl, gl.mean_over(b.mask, lambda i, t: b.old[i][t] - b.new[i][t]))
    same(
        m.prepare(tensor([[-50.0, 0.0]]), tensor([[0.0, -50.0]]), tensor([[1.0, 1]]), torch.ones(1, 2)).log_ratio,
        [[20, -20]],
    )
    assert m.clip_range({"clip_ratio": 0.3}) == (0.3, 0.3) and m.clip_range({}) == (0.2, 0.2)
    assert m.clip_range({"clip_ratio_low": 0.1, "clip_ratio_high": 0.4}) == (0.1, 0.4)
    known = COUNTS | {"loss_scale_factor": 4}
    assert m.batch_info({"global_batch_info": known | {"other": 1}, "loss_scale_factor": 9}) == known
    assert m.batch_info({"loss_scale_factor": 9, "global_batch_info": {"loss_scale_factor": None}}) == {
        "loss_scale_factor": 9
    }
    assert m.batch_info({}) == {"loss_scale_factor": None}
    weights = tensor(b.weights).requires_grad_()
    loss = m.finish(tensor(b.adv), tensor(b.mask), "token-mean", {"global_batch_info": COUNTS}, weights)
    same(loss, gl.aggregate(gl.weighted(b.mask, lambda i, t: b.adv[i][t], b.weights), b.mask, "token-mean", **COUNTS))
    assert not loss.requires_grad
    same(m.finish(tensor(b.adv), tensor(b.mask), "token-sum", {}), gl.aggregate(b.adv, b.mask, "token-sum"))
    same(m.share(tensor([[1, 1, 0]]) > 0, torch.tensor([[1, 0, 1]])), 0.5)


def check_aggregate(m):
    for b, mode, counts in itertools.product(batches(), MODES, ({}, COUNTS, COUNTS | {"loss_scale_factor": 5})):
        loss = tensor(b.values).requires_grad_()
        got = m.agg_loss(loss, tensor(b.mask), mode, **counts)
        same(got, gl.aggregate(b.values, b.mask, mode, **counts))
        got.backward()
        assert torch.isfinite(loss.grad).all()
    for mode in MODES:
        same(m.agg_loss(torch.full((2, 2), NAN), torch.zeros(2, 2), mode), 0.0)
        same(m.agg_loss(torch.ones(2, 2), torch.zeros(2, 2), mode, batch_num_tokens=0, global_batch_size=0), 0.0)
    same(m.agg_loss(torch.ones(1, 2), torch.ones(1, 2), "token-mean", batch_num_tokens=0), 2.0)
    same(m.agg_loss(torch.ones(1, 2), torch.ones(1, 2), "seq-mean-token-sum", global_batch_size=0), 2.0)
    refused(lambda: m.agg_loss(torch.ones(1, 1), torch.ones(1, 1), "token-median"))


def check_value_loss(m):
    for b, counts in itertools.product(batches(), ({}, COUNTS)):
        predicted, returns = tensor(b.values + b.new * 0.5).requires_grad_(), b.values + b.old * 0.4
        args = returns, b.values, b.mask, 0.4, "seq-mean-token-mean"
        loss, clipfrac = m.compute_value_loss(predicted, *map(tensor, args[:3]), *args[3:], **counts)
        want, want_clipfrac = gl.value_loss(b.values + b.new * 0.5, *args, **counts)
        same(loss, want)
        np.testing.assert_allclose(clipfrac.item(), want_clipfrac, rtol=1e-6)
        loss.backward()
        start = b.values + b.new * 0.5
        gradient = numeric_gradient(
            lambda x, args=args, counts=counts: gl.value_loss(x, *args, **counts)[0], start, b.mask
        )
        np.testing.assert_allclose(predicted.grad.numpy(), gradient, rtol=1e-5, atol=1e-7)
    ones = torch.ones(1, 3)
    same(m.compute_value_loss(2 * ones, ones, ones, torch.tensor([[1, 1, 0]]), 9.0)[0], 0.5)


def check_kl(m):
    b = Batch(0)
    logp, ref = np.where(b.mask > 0, b.new, -1.0), np.where(b.mask > 0, b.old, -2.0)
    logp[0, 0], ref[0, 0], logp[0, 1], ref[0, 1], logp[1, 0], ref[1, 0] = -1.0, -60.0, -60.0, -1.0, -2.5, -0.1
    for name in ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"):
        want = np.vectorize(lambda x, y, name=name: gl.kl(name, x, y), otypes=[float])(logp, ref)
        for suffix in ("", "+"):
            x = tensor(logp).requires_grad_()
            got = m.kl_penalty(x, tensor(ref), name + suffix)
            same(got, want)
            same(m.kl_penalty_forward(x, tensor(ref), name + suffix), want)
            got.sum().backward()
            slope = "k2" if suffix else name
            slope = np.vectorize(lambda x, y, name=slope: gl.kl(name, x, y), otypes=[float])
            gradient = (slope(logp + 1e-6, ref) - slope(logp - 1e-6, ref)) / 2e-6
            np.testing.assert_allclose(x.grad.numpy(), gradient, rtol=1e-5, atol=1e-6)
    far = torch.tensor([-300.0, 0.0], requires_grad=True)
    m.kl_penalty(far, torch.tensor([0.0, -300.0]), "k3").sum().backward()
    assert torch.isfinite(far.grad).all()
    refused(lambda: m.kl_penalty(x, x, "k4"))
    try:
        m.kl_penalty(x, x, "full")
    except NotImplementedError:
        pass
    else:
        raise AssertionError("full accepted")
    same(m.compute_rewards(tensor([1.0]), tensor([-1.0]), tensor([-1.5]), 0.2), [0.9])
    for current, steps, factor in (
        (0.3, 64, 1 + 0.2 * 64 / 1000),
        (0.05, 64, 1 - 0.2 * 64 / 1000),
        (0.11, 10, 1 + 0.1 * 10 / 1000),
    ):
        adaptive = m.get_kl_controller({"type": "adaptive", "kl_coef": 0.5, "target_kl": 0.1, "horizon": 1000})
        adaptive.update(current, steps)
        same(adaptive.value, 0.5 * factor)
    fixed = m.get_kl_controller({"type": "fixed", "kl_coef": 0.5})
    fixed.update(9.0, 9)
    assert fixed.value == 0.5
    refused(lambda: m.get_kl_controller({"type": "odd"}))
    for bad in ({"horizon": 0}, {}):
        refused(lambda bad=bad: m.get_kl_controller({"type": "adaptive", "kl_coef": 1.0, "target_kl": 0.1} | bad))
    m.get_kl_controller({"type": "adaptive", "kl_coef": 1.0, "target_kl": 0.1, "horizon": 1})


def check_logits(m):
    torch.manual_seed(0)
    logits = torch.randn(5, 3, 7, dtype=torch.float64) * 3
    labels = torch.randint(0, 7, (5, 3))
    prob = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(-1, keepdims=True)
    chosen = np.log(np.take_along_axis(prob, labels.numpy()[..., None], -1))[..., 0]
    entropy = -(prob * np.log(prob)).sum(-1)
    upstream = torch.randn(5, 3, dtype=torch.float64)
    onehot = np.eye(7)[labels.numpy()]
    for chunk in (2, 4096):
        m.CHUNK_ELEMENTS = chunk * 7
        same(m.logprobs_from_logits(logits, labels, False), chosen)
        same(m.logprobs_from_logits_naive(logits, labels), chosen)
        same(m.entropy_from_logits(logits), entropy)
        same(m.entropy_from_logits_with_chunking(logits, chunk), entropy)
        same(m.calculate_sum_pi_squared_from_logits(logits), (prob**2).sum(-1))
        leaf = logits.clone().requires_grad_()
        m.logprobs_from_logits(leaf, labels).backward(upstream)
        same(leaf.grad, (onehot - prob) * upstream.numpy()[..., None])
        same(leaf, logits.numpy())
        leaf.grad = None
        middle = leaf * 1.0
        m.logprobs_from_logits(middle, labels, inplace_backward=True).backward(upstream)
        same(leaf.grad, (onehot - prob) * upstream.numpy()[..., None])
        same(middle, (onehot - prob) * upstream.numpy()[..., None])
        leaf.grad = None
        m.entropy_from_logits_with_chunking(leaf, chunk).backward(upstream)
        same(leaf.grad, -prob * (np.log(prob) + entropy[..., None]) * upstream.numpy()[..., None])
    leaf.grad = None
    middle = leaf * 1.0
    total = m.logprobs_from_logits(middle, labels, inplace_backward=False).sum() + m.entropy_from_logits(middle).sum()
    total.backward()
    same(leaf.grad, onehot - prob - prob * (np.log(prob) + entropy[..., None]))
    middle = leaf * 1.0
    total = m.entropy_from_logits(middle).sum()
    # Runs first in backward, and overwrites what the entropy needs.
    total = total + m.logprobs_from_logits(middle, labels, inplace_backward=True).sum()
    refused(total.backward)
    holes = torch.tensor([[0.0, 0.0, -torch.inf]], requires_grad=True)
    found = m.entropy_from_logits(holes)
    same(found, np.float32([math.log(2)]))
    found.sum().backward()
    assert torch.isfinite(holes.grad).all()
    bf16 = logits.bfloat16()
    assert m.logprobs_from_logits(bf16, labels).dtype == torch.float32
    assert m.entropy_from_logits(torch.zeros(0, 4)).shape == (0,)
    same(m.gather_from_labels(torch.tensor([[1.0, 2.0]]), torch.tensor([1])), [2.0])


# --- rollout correction ----------------------------------------------------------------------------------------------


def check_importance(m):
    for b, level, cut, normalize in itertools.product(batches(), ("token", "sequence"), (True, False), (True, False)):
        difference = b.difference
        lower, upper = (0.7, 1.4) if level == "token" else (0.1, 5.0)
        lower = None if cut else lower
        threshold = upper if cut else f"{lower}_{upper}"
        got, metrics = m.compute_rollout_correction_weights(
            tensor(difference), tensor(b.mask), level, threshold, normalize
        )
        want, want_metrics = gc.importance(difference, b.mask, level, upper, lower, normalize)
        same(got, want)
        assert set(metrics) == set(want_metrics)
        same_metrics(metrics, want_metrics)
    huge = np.where(b.mask > 0, 50.0, NAN)
    got, metrics = m.compute_rollout_correction_weights(tensor(huge), tensor(b.mask), "token", 1e9)
    same(got, b.mask * math.exp(20))
    same(metrics["rollout_is_max"], math.exp(20))
    got, metrics = m.compute_rollout_correction_weights(tensor(-huge), tensor(b.mask), "token", "0_1e9")
    same(metrics["rollout_is_min"], math.exp(-20))
    same(metrics["rollout_is_ratio_fraction_low"], 0.0)
    got, _ = m.compute_rollout_correction_weights(tensor(difference), tensor(b.mask))
    same(got, gc.importance(difference, b.mask, "token", 2.0)[0])
    for level in ("token", "sequence"):
        got, metrics = m.compute_rollout_correction_weights(torch.ones(2, 2), torch.zeros(2, 2), level, 2.0, True)
        same(got, np.zeros((2, 2)))
        assert all(value == 0.0 for name, value in metrics.items() if name != "rollout_is_batch_norm_factor")
        assert metrics["rollout_is_batch_norm_factor"] == 1.0
    grad = tensor(np.zeros((1, 1))).requires_grad_()
    assert not m.compute_rollout_correction_weights(grad, torch.ones(1, 1))[0].requires_grad


def check_rejection(m):
    rules = [("token_k1", (0.8, 1.3)), ("seq_sum_k1", (0.6, 1.4)), ("seq_mean_k1", (0.9, 1.2))]
    rules += [
        (f"{level}_k{k}", limit)
        for level, limit in (("token", 0.1), ("seq_sum", 0.5), ("seq_mean", 0.1), ("seq_max", 0.3))
        for k in (2, 3)
    ]
    for b in batches():
        difference = b.difference
        left, expected, options, thresholds = b.mask, {}, [], []
        for option, limit in rules:
            k1 = isinstance(limit, tuple)
            text = f"{limit[0]}_{limit[1]}" if k1 else limit
            want, want_metrics = gc.rejection(difference, b.mask, option, limit if k1 else None, None if k1 else limit)
            got, metrics = m.compute_rollout_rejection_mask(tensor(difference), tensor(b.mask), option, text)
            same(got, want)
            same_metrics(metrics, want_metrics)
            same(metrics["rollout_rs_masked_fraction"], want_metrics[f"rollout_rs_{option}_masked_fraction"])
            left, expected = left * want, expected | want_metrics
            options.append(option)
            thresholds.append(str(text))
        got, metrics = m.compute_rollout_rejection_mask(
            tensor(difference), tensor(b.mask), ",".join(options), ", ".join(thresholds)
        )
        same(got, left)
        same_metrics(metrics, expected)
        same(metrics["rollout_rs_masked_fraction"], 1 - left.sum() / b.mask.sum())
        touched = [(keep > rest).any() for keep, rest in zip(b.mask, left, strict=True) if keep.any()]
        same(metrics["rollout_rs_seq_masked_fraction"], np.mean(touched))
    # One number bounds the ratio on both sides.
    args = tensor([[0.5, -0.5, 0.8, -0.8]]), torch.ones(1, 4)
    same(m.compute_rollout_rejection_mask(*args, rollout_rs_threshold=2.0)[0], [[1, 1, 0, 0]])
    huge = m.compute_rollout_rejection_mask(tensor([[50.0]]), torch.ones(1, 1), "token_k1", 2.0)[1]
    same(huge["rollout_rs_token_k1_mean"], -20.0)
    low = m.compute_rollout_rejection_mask(tensor([[-50.0]]), torch.ones(1, 1), "token_k1", 2.0)[1]
    same(low["rollout_rs_token_k1_mean"], 20.0)
    whole = m.compute_rollout_rejection_mask(
        tensor([[0.0, 3.0]]), torch.ones(1, 2, dtype=torch.int64), "token_k1", 2.0
    )[0]
    assert whole.dtype == torch.int64 and whole.tolist() == [[1, 0]]
    statistic, ones = tensor([[1.0, 3.0], [4.0, 4.0]]), torch.ones(2, 2)
    settings = {"level": "token", "per_sequence_values": None, "rollout_rs_threshold": 3.5}
    settings |= {"rollout_rs_threshold_lower": 2.5, "apply_lower_threshold": True}
    found = m.compute_rs_metrics("x", statistic, ones, torch.ones(2, dtype=torch.bool), **settings)
    wanted = {
        "mean": 3.0,
        "fraction_high": 0.5,
        "fraction_low": 0.25,
        "seq_mean": 3.0,
        "seq_fraction_low": 0.5,
        "seq_max": 4.0,
    }
    same_metrics(found, {f"rollout_rs_x_{name}": value for name, value in wanted.items()})
    empty = m.compute_rollout_rejection_mask(torch.ones(2, 2), torch.zeros(2, 2), "seq_mean_k1", 2.0)[1]
    assert all(value == 0.0 for value in empty.values())


def check_diagnostics(m):
    for b in batches():
        got = m.compute_offpolicy_metrics(tensor(b.new), tensor(b.old), tensor(b.mask))
        want = gc.diagnostics(b.new, b.old, b.mask)
        assert set(got) == set(want)
        same_metrics(got, want)
        alone = m.compute_offpolicy_metrics(tensor(b.new), None, tensor(b.mask))
        assert set(alone) == {"training_ppl", "training_log_ppl"}
        same_metrics(alone, {name: want[name] for name in alone})
        logged = m.compute_rollout_corr_metrics_from_logprobs(tensor(b.new), tensor(b.old), tensor(b.mask))
        same_metrics(logged, {"rollout_corr/" + name: value for name, value in want.items()})
    for sign in (1, -1):
        far = np.array([[-1.0 + 30 * sign, -1.0 + 30 * sign]]), np.array([[-1.0, -1.0]]), np.ones((1, 2))
        same_metrics(m.compute_offpolicy_metrics(*map(tensor, far)), gc.diagnostics(*far))
    empty = m.compute_offpolicy_metrics(torch.zeros(2, 2), torch.zeros(2, 2), torch.zeros(2, 2))
    assert all(value == 0.0 for value in empty.values())
    assert m.mismatch_line({}) is None
    line = m.mismatch_line({"actor/rollout_corr/k3_kl": 0.00123, "actor/rollout_corr/ess": 0.987})
    assert line == "rollout/trainer mismatch: k3 1.2e-03, effective sample size 98.7%"
    assert "k3 5.0e-01" in m.mismatch_line({"rollout_corr/k3_kl": 0.5, "rollout_corr/ess": 1.0})


def check_statistics(m):
    values, mask = tensor([1.0, 2.0, 6.0, NAN]), torch.tensor([1, 1, 1, 0])
    assert m.summarize(values, mask) == (3.0, math.sqrt(7.0), 6.0, 1.0)
    assert m.summarize(values, torch.tensor([1, 0, 0, 0])) == (1.0, 0.0, 1.0, 1.0)
    assert m.summarize(values, torch.zeros(4)) == (0.0, 0.0, 0.0, 0.0)
    assert m.summarize(values, torch.tensor([1, 1, 0, 0])) == (1.5, math.sqrt(0.5), 2.0, 1.0)
    assert m.fraction(values > 0.5, torch.tensor([1, 0, 0, 0])) == 1.0
    same(m.effective_sample_size(tensor([1.0, 3.0]), torch.ones(2)), 4 / 5)
    assert m.fraction(values > 1.5, mask) == np.float32(2 / 3)
    assert m.fraction(values > 1.5, torch.zeros(4)) == 0.0
    same(m.effective_sample_size(tensor([1.0, 1.0, 0.0, 9.0]), torch.tensor([1, 1, 1, 0])), 2 / 3)
    assert m.effective_sample_size(values, torch.zeros(4)) == 0.0
    assert m.effective_sample_size(torch.zeros(4), torch.ones(4)) == 0.0


def check_spec(m):
    spec = m.parse_correction("token", "0.5_2.0", True, "token_k1, seq_max_k3", "0.5_4.0,0.1")
    assert (spec.importance.lower, spec.importance.upper, spec.importance.batch_normalize) == (0.5, 2.0, True)
    first, second = spec.rejection
    assert (first.estimator, first.reduction, first.option) == (1, "token", "token_k1")
    same([first.lower, first.upper], [-math.log(4.0), math.log(2.0)])
    assert (second.estimator, second.reduction, second.upper, second.lower) == (3, "max", 0.1, None)
    shared = m.parse_rejection("seq_sum_k2,seq_mean_k3", 0.2)
    assert [(rule.reduction, rule.upper) for rule in shared] == [("sum", 0.2), ("mean", 0.2)]
    one = m.parse_rejection("seq_mean_k1", 2)[0]
    same([one.lower, one.upper], [-math.log(2.0), math.log(2.0)])
    none = m.read_correction({"rollout_is": None})
    assert none.importance is None and none.rejection == ()
    read = m.read_correction({"rollout_is": "sequence", "rollout_rs": "token_k2", "rollout_rs_threshold": 1})
    assert read.importance.level == "sequence" and read.importance.upper == 2.0 and not read.importance.batch_normalize
    assert read.importance.lower is None and read.rejection[0].upper == 1.0
    read = m.read_correction({"rollout_is": "token", "rollout_is_threshold": "3", "rollout_is_batch_normalize": True})
    assert read.importance.upper == 3.0 and read.importance.batch_normalize
    m.parse_rejection("token_k1", "1.0_1.0")
    assert m.parse_importance("token", 0.5).upper == 0.5
    wrong_is = [("word", 2.0), ("token", None), ("token", "a_b"), ("token", "2_1"), ("token", "1_2_3"), ("token", 0.0)]
    for level, threshold in wrong_is:
        refused(lambda level=level, threshold=threshold: m.parse_importance(level, threshold))
    wrong_rs = [
        ("token_k1", None),
        ("token_k4", 1.0),
        ("seq_max_k1", "0.5_2.0"),
        ("token_k2", "0.1_0.2"),
        ("token_k2", 0.0),
    ]
    wrong_rs += [("token_k1", "0_2"), ("token_k1", 0.5), ("token_k1,token_k2", "1,2,3"), ("token_k3", "x")]
    for option, threshold in wrong_rs:
        refused(lambda option=option, threshold=threshold: m.parse_rejection(option, threshold))


A = "verl.algorithms."
CHECKS = {
    A + "tensor_math": [check_masked, check_suffix_sums],
    A + "groups": [check_groups],
    A + "aggregate": [check_aggregate],
    A + "kl": [check_kl],
    A + "logits": [check_logits],
    A + "value_loss": [check_value_loss],
    A + "advantages.gae": [check_gae],
    A + "advantages.grpo": [check_grpo, check_passk, check_gdpo],
    A + "advantages.reinforce": [check_reinforce],
    A + "advantages.optimal_baseline": [check_optimal_baseline],
    A + "policy_losses.registry": [check_registry],
    A + "policy_losses.ppo": [check_ppo],
    A + "policy_losses.sequence": [check_sequence],
    A + "policy_losses.trust_region": [check_trust_region],
    A + "policy_losses.soft": [check_soft],
    A + "policy_losses.covariance": [check_covariance],
    A + "policy_losses.reinforce": [check_reinforce_loss],
    A + "policy_losses.bypass": [check_bypass],
    A + "rollout_correction.statistics": [check_statistics],
    A + "rollout_correction.spec": [check_spec],
    A + "rollout_correction.importance": [check_importance],
    A + "rollout_correction.rejection": [check_rejection],
    A + "rollout_correction.diagnostics": [check_diagnostics],
    **BALANCE_CHECKS,
    **METRIC_CHECKS,
}
