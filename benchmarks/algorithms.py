# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hot functions of the ground floor against a plain reference in the same run: ratios of time, and of peak memory.

    python benchmarks/algorithms.py --shapes 512x1024 8192x1024 512x16384 --logits 4096x32000 --only grpo gae

Both sides get the same inputs and must agree before they are timed, on one thread and in processor seconds. Prints a
table row a case (with --json, an object a line): `speedup` is the reference's best time over ours; `memory` our extra
peak memory over the reference's.
"""

import argparse
import json
import multiprocessing
import pickle
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verl.algorithms.advantages import get_adv_estimator_fn
from verl.algorithms.batch_balance import get_seqlen_balanced_partitions, greedy_partition
from verl.algorithms.logits import entropy_from_logits_with_chunking, logprobs_from_logits, logprobs_from_logits_naive
from verl.algorithms.micro_batches import prepare_dynamic_batch
from verl.algorithms.policy_losses import get_policy_loss_fn
from verl.algorithms.rollout_correction.importance import compute_rollout_correction_weights
from verl.algorithms.tensor_math import discounted_suffix_sum, masked_whiten
from verl.protocol import DataProto
from verl.trainer.ppo.metric_utils import compute_data_metrics
from verl.trainer.ppo.validation_metrics import bootstrap_metric, process_validation_metrics

GROUP = 8
Case = Callable[[], Any]


class Inputs:
    """A batch of ragged trajectories: B rows, T response tokens, one reward at the end of each."""

    def __init__(self, samples: int, tokens: int) -> None:
        generator = torch.Generator().manual_seed(0)
        rng = np.random.default_rng(0)
        self.samples, self.tokens = samples, tokens
        self.lengths = rng.integers(max(1, tokens // 16), tokens + 1, samples)
        self.mask = torch.arange(tokens) < torch.from_numpy(self.lengths).unsqueeze(-1)
        self.rewards = torch.zeros(samples, tokens)
        self.rewards[torch.arange(samples), torch.from_numpy(self.lengths) - 1] = torch.rand(
            samples, generator=generator
        )
        self.index = np.repeat(np.arange(-(-samples // GROUP)), GROUP)[:samples].astype(str).astype(object)

    def normal(self, scale: float = 1.0, seed: int = 1) -> torch.Tensor:
        return torch.randn(self.samples, self.tokens, generator=torch.Generator().manual_seed(seed)) * scale


# ---- cases: name -> (ours, reference), from the same inputs ---------------------------------------------------------


def grpo(x: Inputs) -> tuple[Case, Case]:
    estimate = get_adv_estimator_fn("grpo")

    def one_prompt_at_a_time() -> torch.Tensor:
        scores, groups = torch.where(x.mask, x.rewards, 0.0).double().sum(-1), defaultdict(list)
        for row, uid in enumerate(x.index):
            groups[uid].append(row)
        for rows in groups.values():
            mine = scores[rows]
            scores[rows] = (mine - mine.mean()) / (mine.std() + 1e-6)
        return scores.float().unsqueeze(-1) * x.mask

    return lambda: estimate(x.rewards, x.mask, x.index)[0], one_prompt_at_a_time


def suffix_by_column(values: torch.Tensor, mask: torch.Tensor, discount: float) -> torch.Tensor:
    """One token at a time from the right, as the recursion is written down."""
    out, running = torch.zeros_like(values), torch.zeros(len(values))
    for t in reversed(range(values.shape[1])):
        running = torch.where(mask[:, t], values[:, t] + discount * running, running)
        out[:, t] = torch.where(mask[:, t], running, 0.0)
    return out


def suffix_sum(x: Inputs) -> tuple[Case, Case]:
    return (
        lambda: discounted_suffix_sum(x.rewards, x.mask, 0.95),
        lambda: suffix_by_column(x.rewards, x.mask, 0.95),
    )


def gae(x: Inputs) -> tuple[Case, Case]:
    values, estimate = x.normal(), get_adv_estimator_fn("gae")

    def by_column() -> torch.Tensor:
        out, running, following = torch.zeros_like(values), torch.zeros(x.samples), torch.zeros(x.samples)
        for t in reversed(range(x.tokens)):
            keep = x.mask[:, t]
            delta = x.rewards[:, t] + 0.99 * following - values[:, t]
            running = torch.where(keep, delta + 0.99 * 0.95 * running, running)
            following = torch.where(keep, values[:, t], following)
            out[:, t] = running
        return masked_whiten(out, x.mask)

    return lambda: estimate(x.rewards, values, x.mask, 0.99, 0.95)[0], by_column


def token_baseline(x: Inputs) -> tuple[Case, Case]:
    old, square = -x.normal().abs(), x.normal(seed=2).sigmoid()
    estimate = get_adv_estimator_fn("optimal_token_baseline")

    def one_prompt_at_a_time() -> torch.Tensor:
        returns = torch.where(x.mask, x.rewards, 0.0).flip(-1).cumsum(-1).flip(-1)
        energy = (torch.where(x.mask, 1 - 2 * old.exp() + square, 0.0).cumsum(-1)) * x.mask
        out, groups = torch.zeros_like(returns), defaultdict(list)
        for row, uid in enumerate(x.index):
            groups[uid].append(row)
        for rows in groups.values():
            baseline = (returns[rows] * energy[rows]).sum(0) / (energy[rows].sum(0) + 1e-8)
            out[rows] = returns[rows] - baseline
        return out * x.mask

    def ours() -> torch.Tensor:
        return estimate(x.rewards, x.mask, x.index, old_log_probs=old, sum_pi_squared=square, handle_zero_tail=False)[0]

    return ours, one_prompt_at_a_time


def ppo_loss(x: Inputs) -> tuple[Case, Case]:
    old, advantages = -x.normal().abs(), x.normal(seed=2)
    new, loss = (old + x.normal(0.1, seed=3)).requires_grad_(), get_policy_loss_fn("vanilla")

    def plain() -> torch.Tensor:
        ratio = (new - old).exp()
        surrogate = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
        surrogate = torch.where(advantages < 0, torch.minimum(surrogate, -advantages * 3.0), surrogate)
        return (surrogate * x.mask).sum() / x.mask.sum()

    def with_gradient(function: Case) -> torch.Tensor:
        new.grad = None
        function().backward()
        return new.grad

    return (
        lambda: with_gradient(lambda: loss(old, new, advantages, x.mask, "token-mean", {})[0]),
        lambda: with_gradient(plain),
    )


def importance(x: Inputs) -> tuple[Case, Case]:
    log_ratio = x.normal(0.1)

    def bare_weights() -> torch.Tensor:
        return log_ratio.clamp(-20, 20).exp().clamp(max=2.0) * x.mask

    return lambda: compute_rollout_correction_weights(log_ratio, x.mask, "token", 2.0)[0], bare_weights


def data_metrics(x: Inputs) -> tuple[Case, Case]:
    mask = x.mask.long()
    batch = DataProto.from_dict(
        {
            "responses": mask,
            "attention_mask": torch.cat([torch.ones(x.samples, 4, dtype=torch.long), mask], 1),
            "response_mask": mask,
            "token_level_scores": x.rewards,
            "token_level_rewards": x.rewards,
            "advantages": x.normal(),
            "returns": x.normal(seed=2),
        }
    )

    def in_numpy() -> float:
        column = {name: tensor.numpy() for name, tensor in batch.batch.items()}
        keep, found = column["response_mask"].astype(bool), []
        for name in ("advantages", "returns"):
            kept = column[name][keep].astype(np.float64)
            found += [kept.mean(), kept.max(), kept.min()]
        for name in ("token_level_scores", "token_level_rewards"):
            total = column[name].sum(-1)
            found += [total.mean(), total.max(), total.min()]
        return float(found[0])

    return lambda: compute_data_metrics(batch, use_critic=False)["critic/advantages/mean"], in_numpy


def transport(x: Inputs) -> tuple[Case, Case]:
    """There and back through pickle, padding stripped on the way; the reference pickles the plain tensors."""
    tensors = {"response_mask": x.mask, "log_probs": torch.where(x.mask, x.normal(), 0.0)}
    batch = DataProto.from_dict(tensors)

    def plain() -> torch.Tensor:
        return pickle.loads(pickle.dumps(tensors, protocol=5))["log_probs"]

    return lambda: pickle.loads(pickle.dumps(batch, protocol=5)).batch["log_probs"], plain


PER_TOKEN = {
    "GRPO": grpo,
    "discounted return": suffix_sum,
    "GAE": gae,
    "optimal token baseline": token_baseline,
    "PPO loss and gradient": ppo_loss,
    "importance weights with metrics": importance,
    "data metrics": data_metrics,
    "DataProto pickled and back": transport,
}


def validation(samples: int) -> tuple[Case, Case]:
    rng = np.random.default_rng(0)
    scores, prompts = rng.random(samples).tolist(), np.arange(samples) // GROUP

    def one_draw_at_a_time() -> float:
        found = []
        for prompt in range(samples // GROUP):
            mine = scores[prompt * GROUP : (prompt + 1) * GROUP]
            found.append([bootstrap_metric(mine, n, [max, min]) for n in (2, 4, GROUP)][-1][0][0])
        return float(np.mean(found))

    def ours() -> float:
        found = process_validation_metrics(["s"] * samples, prompts.tolist(), {"reward": scores})
        return found["s"]["reward"][f"best@{GROUP}/mean"]

    return ours, one_draw_at_a_time


# ---- running --------------------------------------------------------------------------------------------------------


def seconds(function: Case, repeat: int) -> float:
    """Best of several runs, in processor seconds of this process: other load on the machine counts for neither side."""
    found = []
    for _ in range(repeat):
        start = time.process_time()
        function()
        found.append(time.process_time() - start)
    return min(found)


def compare(name: str, shape: str, case: tuple[Case, Case], repeat: int) -> dict[str, Any]:
    """Both agree (the first call warms up); then each by its best time."""
    ours, reference = case
    torch.testing.assert_close(torch.as_tensor(ours()), torch.as_tensor(reference()), rtol=1e-3, atol=1e-4)
    mine, plain = seconds(ours, repeat), seconds(reference, repeat)
    return {"name": name, "shape": shape, "seconds": mine, "reference_seconds": plain, "speedup": plain / mine}


def balance(samples: int, tokens: int, parts: int, repeat: int) -> dict[str, Any]:
    """The differencing method against longest-first; `spread` is the largest minus the smallest sum."""
    lengths = Inputs(samples, tokens).lengths.tolist()
    spreads = [
        max(sums) - min(sums)
        for split in (get_seqlen_balanced_partitions, greedy_partition)
        for sums in [[sum(lengths[i] for i in part) for part in split(lengths, parts, True)]]
    ]
    mine = seconds(lambda: get_seqlen_balanced_partitions(lengths, parts, True), repeat)
    plain = seconds(lambda: greedy_partition(lengths, parts, True), repeat)
    return {
        "name": f"balance over {parts} parts",
        "shape": f"{samples}x{tokens}",
        "seconds": mine,
        "reference_seconds": plain,
        "speedup": plain / mine,
        "spread": spreads[0],
        "reference_spread": spreads[1],
    }


def micro_batches(samples: int, tokens: int) -> dict[str, Any]:
    """Of one rank's rows under a cap of two full rows; the least number that the cap allows stands beside it."""
    x = Inputs(samples, tokens)
    data = DataProto.from_dict({"attention_mask": x.mask.long()})
    cap = 2 * tokens
    start = time.process_time()
    parts, _ = prepare_dynamic_batch(data, cap)
    return {
        "name": "dynamic micro-batches",
        "shape": f"{samples}x{tokens}",
        "seconds": time.process_time() - start,
        "parts": len(parts),
        "least": -(-int(x.lengths.sum()) // cap),
    }


def memory_mb(field: str) -> float:
    """VmRSS (present) or VmHWM (peak) of this process; Linux."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def _logits_run(kind: str, rows: int, vocab: int, result: Any) -> None:
    torch.set_num_threads(1)
    head = torch.randn(8, vocab, generator=torch.Generator().manual_seed(0)).requires_grad_()
    logits, labels = torch.randn(rows, 8, generator=torch.Generator().manual_seed(1)) @ head, torch.arange(rows) % vocab
    # From here on the kernel measures the peak anew: what making the logits took does not hide it.
    Path("/proc/self/clear_refs").write_text("5")
    before_mb, start = memory_mb("VmRSS"), time.process_time()
    if kind == "full log-probs":
        loss = logprobs_from_logits_naive(logits, labels)
    elif kind == "chunked log-probs":
        loss = logprobs_from_logits(logits, labels)
    elif kind == "chunked entropy":
        loss = entropy_from_logits_with_chunking(logits)
    else:
        log_prob = logits.log_softmax(-1)
        loss = -(log_prob.exp() * log_prob).sum(-1)
    loss.sum().backward()
    spent, peak_mb = time.process_time() - start, memory_mb("VmHWM")
    result.put((spent, peak_mb - before_mb, head.grad.norm().item()))


def logits_memory(rows: int, vocab: int) -> list[dict[str, Any]]:
    """Extra peak memory, forward and backward; each form in a process of its own, so that none inherits memory."""
    context = multiprocessing.get_context("spawn")
    found = {}
    for kind in ("full log-probs", "chunked log-probs", "full entropy", "chunked entropy"):
        result = context.Queue()
        process = context.Process(target=_logits_run, args=(kind, rows, vocab, result))
        process.start()
        found[kind] = result.get(timeout=300)
        process.join(timeout=60)
    reports = []
    for what in ("log-probs", "entropy"):
        (mine, my_mb, my_norm), (plain, full_mb, norm) = found[f"chunked {what}"], found[f"full {what}"]
        torch.testing.assert_close(my_norm, norm, rtol=1e-3, atol=1e-4)
        reports.append(
            {
                "name": f"{what} from logits, chunked",
                "shape": f"{rows}x{vocab}",
                "seconds": mine,
                "reference_seconds": plain,
                "speedup": plain / mine,
                "logits_mb": rows * vocab * 4 / 2**20,
                "extra_mb": my_mb,
                "reference_extra_mb": full_mb,
                "memory": my_mb / max(full_mb, 1e-9),
            }
        )
    return reports


COLUMNS = ("name", "shape", "seconds", "reference_seconds", "speedup")


def show(report: dict[str, Any], as_json: bool) -> None:
    numbers = {key: float(f"{value:.3g}") if isinstance(value, float) else value for key, value in report.items()}
    if as_json:
        line = json.dumps(numbers)
    else:
        rest = ", ".join(f"{key} {value}" for key, value in numbers.items() if key not in COLUMNS)
        line = " | ".join(["", *(str(numbers.get(key, "")) for key in COLUMNS), rest, ""]).strip()
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def shape(text: str) -> tuple[int, int]:
    rows, _, columns = text.partition("x")
    return int(rows), int(columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=shape, nargs="*", default=[(512, 1024), (8192, 1024), (512, 16384)])
    parser.add_argument("--logits", type=shape, nargs="*", default=[(4096, 32_000)], help="tokens x vocabulary")
    parser.add_argument("--only", nargs="+", default=None, help="cases whose name contains one of these")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)

    def wanted(name: str) -> bool:
        return args.only is None or any(word.lower() in name.lower() for word in args.only)

    if not args.json:
        sys.stdout.write(f"| {' | '.join(COLUMNS)} | more |\n|{'---|' * (len(COLUMNS) + 1)}\n")
    for samples, tokens in args.shapes:
        for name, case in PER_TOKEN.items():
            if wanted(name):
                show(compare(name, f"{samples}x{tokens}", case(Inputs(samples, tokens)), args.repeat), args.json)
        for parts in (8, 256):
            if wanted("balance") and parts <= samples:
                show(balance(samples, tokens, parts, args.repeat), args.json)
        if wanted("micro-batches"):
            show(micro_batches(samples // GROUP, tokens), args.json)
    for samples in sorted({samples for samples, _ in args.shapes}):
        if wanted("validation"):
            show(compare("validation metrics", f"{samples}", validation(samples), 1), args.json)
    for rows, vocab in args.logits:
        if wanted("logits"):
            for report in logits_memory(rows, vocab):
                show(report, args.json)


if __name__ == "__main__":
    main()
