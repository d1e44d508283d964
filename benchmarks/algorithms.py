# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hot functions of the algorithms against a plain reference in the same run: ratios of time, and of peak memory.

    python benchmarks/algorithms.py --samples 512 8192 --tokens 1024 16384 --vocab 32000

Prints one JSON object a line: `speedup` is reference time over ours, `memory_ratio` our extra peak over the
reference's.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from verl.algorithms.advantages import get_adv_estimator_fn
from verl.algorithms.batch_balance import get_seqlen_balanced_partitions, greedy_partition, partition_by_budget
from verl.algorithms.logits import entropy_from_logits_with_chunking, logprobs_from_logits, logprobs_from_logits_naive
from verl.algorithms.tensor_math import discounted_suffix_sum
from verl.trainer.ppo.validation_metrics import bootstrap_metric, process_validation_metrics

GROUP = 8


def seconds(function: Callable[[], Any], repeat: int) -> float:
    """Best of several runs, after one to warm up."""
    function()
    found = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return min(found)


def report(name: str, **numbers: Any) -> None:
    rounded = {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in numbers.items()}
    sys.stdout.write(json.dumps({"name": name} | rounded) + "\n")


def grpo_by_loop(rewards: torch.Tensor, mask: torch.Tensor, index: np.ndarray) -> torch.Tensor:
    """One prompt at a time, as the formula is usually written down."""
    scores, groups = rewards.sum(-1), defaultdict(list)
    for row, uid in enumerate(index):
        groups[uid].append(row)
    for rows in groups.values():
        mine = scores[rows]
        scores[rows] = (mine - mine.mean()) / (mine.std() + 1e-6)
    return scores.unsqueeze(-1) * mask


def suffix_sum_by_loop(values: torch.Tensor, mask: torch.Tensor, discount: float) -> torch.Tensor:
    """One token at a time from the right."""
    out, running = torch.zeros_like(values), torch.zeros(len(values))
    for t in reversed(range(values.shape[1])):
        running = torch.where(mask[:, t], values[:, t] + discount * running, running)
        out[:, t] = running
    return out


def advantages(samples: int, tokens: int, repeat: int) -> None:
    mask = torch.rand(samples, tokens) < 0.9
    rewards = torch.zeros(samples, tokens)
    rewards[:, 0] = torch.rand(samples)
    mask[:, 0] = True
    index = np.repeat(np.arange(samples // GROUP), GROUP).astype(str).astype(object)
    grpo = get_adv_estimator_fn("grpo")
    ours = seconds(lambda: grpo(rewards, mask, index), repeat)
    loop = seconds(lambda: grpo_by_loop(rewards, mask, index), repeat)
    report("grpo", samples=samples, tokens=tokens, seconds=ours, speedup=loop / ours)
    ours = seconds(lambda: discounted_suffix_sum(rewards, mask, 0.95), repeat)
    loop = seconds(lambda: suffix_sum_by_loop(rewards, mask, 0.95), 1)
    report("discounted_suffix_sum", samples=samples, tokens=tokens, seconds=ours, speedup=loop / ours)


def balance(samples: int, tokens: int, repeat: int) -> None:
    lengths = np.random.default_rng(0).integers(tokens // 16, tokens, samples).tolist()
    for parts in (8, 256):
        if parts > samples:
            continue
        ours = seconds(lambda parts=parts: get_seqlen_balanced_partitions(lengths, parts, True), repeat)
        greedy = seconds(lambda parts=parts: greedy_partition(lengths, parts, True), repeat)
        spreads = [
            max(sums) - min(sums)
            for split in (get_seqlen_balanced_partitions, greedy_partition)
            for sums in [[sum(lengths[i] for i in part) for part in split(lengths, parts, True)]]
        ]
        report(
            "balance",
            samples=samples,
            parts=parts,
            seconds=ours,
            greedy_seconds=greedy,
            spread=spreads[0],
            greedy_spread=spreads[1],
        )
    mine = lengths[: samples // 8]
    ours = seconds(lambda: partition_by_budget(mine, 2 * tokens), 1)
    least = -(-sum(mine) // (2 * tokens))
    report("budget", samples=len(mine), seconds=ours, parts=len(partition_by_budget(mine, 2 * tokens)), least=least)


def validation(samples: int, repeat: int) -> None:
    rng = np.random.default_rng(0)
    scores, uids = rng.random(samples).tolist(), np.repeat(np.arange(samples // GROUP), GROUP).tolist()
    ours = seconds(lambda: process_validation_metrics(["s"] * samples, uids, {"reward": scores}), repeat)
    prompt = scores[:GROUP]
    one = seconds(lambda: [bootstrap_metric(prompt, n, [np.max, np.min]) for n in (2, 4, 8)], 1)
    report("validation", samples=samples, seconds=ours, speedup=one * (samples // GROUP) / ours)


def _logits_run(kind: str, rows: int, vocab: int, result: Any) -> None:
    torch.set_num_threads(1)
    hidden, head = torch.randn(rows, 8), torch.randn(8, vocab, requires_grad=True)
    labels = torch.randint(0, vocab, (rows,))
    logits = hidden @ head
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    if kind == "full":
        logprobs_from_logits_naive(logits, labels).sum().backward()
    elif kind == "chunked":
        logprobs_from_logits(logits, labels).sum().backward()
    else:
        entropy_from_logits_with_chunking(logits).sum().backward()
    result.put((time.perf_counter() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))


def logits_memory(tokens: int, vocab: int) -> None:
    """Each form in a process of its own, because the peak of a process never goes down."""
    context = multiprocessing.get_context("spawn")
    found = {}
    for kind in ("full", "chunked", "entropy"):
        result = context.Queue()
        process = context.Process(target=_logits_run, args=(kind, tokens, vocab, result))
        process.start()
        found[kind] = result.get(timeout=300)
        process.join(timeout=60)
    megabytes = tokens * vocab * 4 / 2**20
    for kind in ("chunked", "entropy"):
        report(
            f"log-probs, {kind}" if kind == "chunked" else "entropy, chunked",
            tokens=tokens,
            vocab=vocab,
            logits_mb=megabytes,
            extra_mb=found[kind][1],
            full_extra_mb=found["full"][1],
            memory_ratio=found[kind][1] / max(found["full"][1], 1e-9),
            speedup=found["full"][0] / found[kind][0],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[512, 8192])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024])
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for samples in args.samples:
        for tokens in args.tokens:
            advantages(samples, tokens, args.repeat)
            balance(samples, tokens, args.repeat)
        validation(samples, args.repeat)
    for tokens in args.tokens:
        logits_memory(max(tokens, 4096), args.vocab)


if __name__ == "__main__":
    main()
