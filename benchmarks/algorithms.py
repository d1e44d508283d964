# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hot functions of the ground floor against a plain reference in the same run: ratios of time, and of peak memory.

    python benchmarks/algorithms.py --shapes 512x1024 8192x1024 --logits 4096x32000 --only grpo gae --memory-gb 20

Both sides get the same inputs, on one thread and in processor seconds; a result that is not the reference's ends the
run with exit code 1. Prints a table row a case (with --json, an object a line): `speedup` is the reference's best time
over ours; `peak_gb` what the process holds at most while our function works, inputs included; `memory` our extra peak
memory over the reference's.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cases import PER_LENGTH, PER_TOKEN, Inputs, validation

from verl.algorithms.logits import entropy_from_logits_with_chunking, logprobs_from_logits, logprobs_from_logits_naive

SHAPES = [(512, 1024), (8192, 1024), (512, 16384), (8192, 16384)]
# Above so many elements a second run tells nothing new: the first call is the timed one.
ONCE_ABOVE = 2**26
# float32 sums of up to 16 384 terms, in another order.
TOLERANCE = 1e-3
# Rounding puts so few on the other side of a clip or a rejection.
AT_A_THRESHOLD = 1e-5


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of this process (other load on the machine counts for neither side), and the result."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def best(function: Callable[[], Any], first_s: float, repeat: int) -> float:
    return min([first_s, *(seconds(function)[0] for _ in range(repeat))])


def agree(name: str, ours: Any, reference: Any) -> None:
    """Each number to a thousandth of itself or of the average one."""
    ours, reference = torch.as_tensor(ours), torch.as_tensor(reference)
    if ours.shape != reference.shape:
        raise AssertionError(f"{name}: {tuple(ours.shape)} against the reference's {tuple(reference.shape)}")
    size = reference.abs().sum(dtype=torch.float64) / torch.count_nonzero(reference).clamp(min=1)
    if not size > 0:
        raise AssertionError(f"{name}: the reference is zero everywhere, or no number, so that nothing is compared")
    wrong, worst = 0, 0.0
    # A block at a time, so that the comparison needs no memory of its own.
    for mine, plain in zip(ours.flatten().split(2**22), reference.flatten().split(2**22), strict=True):
        gap, plain = (mine.double() - plain.double()).abs_(), plain.double()
        right = gap <= TOLERANCE * (plain.abs_() + size)
        wrong += int((~right).sum())
        worst = max(worst, gap.max().item())
    if wrong > int(ours.numel() * AT_A_THRESHOLD):
        raise AssertionError(
            f"{name}: {wrong} of {ours.numel()} numbers are not the reference's, by up to {worst:.3g} where the "
            f"average is {size.item():.3g}"
        )


def compare(name: str, shape: str, case: tuple[Callable[[], Any], Callable[[], Any]], repeat: int) -> dict[str, Any]:
    """Both once, which must agree; then `repeat` times each."""
    ours, reference = case
    reset_peak()
    mine_s, result = seconds(ours)
    peak_gb = memory_mb("VmHWM") / 1024
    plain_s, expected = seconds(reference)
    agree(f"{name} at {shape}", result, expected)
    del result, expected
    mine_s, plain_s = best(ours, mine_s, repeat), best(reference, plain_s, repeat)
    return report(name, shape, mine_s, plain_s) | {"peak_gb": peak_gb}


def report(name: str, shape: str, mine_s: float, plain_s: float) -> dict[str, Any]:
    return {
        "name": name,
        "shape": shape,
        "seconds": mine_s,
        "reference_seconds": plain_s,
        "speedup": plain_s / max(mine_s, 1e-9),
    }


def reset_peak() -> None:
    """From here on the kernel measures the peak anew."""
    Path("/proc/self/clear_refs").write_text("5")


def memory_mb(field: str) -> float:
    """VmRSS (present) or VmHWM (peak) of this process; Linux."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def _logits_run(kind: str, rows: int, vocab: int, result: Any) -> None:
    torch.set_num_threads(1)
    head = torch.randn(8, vocab, generator=torch.Generator().manual_seed(0)).requires_grad_()
    logits, labels = torch.randn(rows, 8, generator=torch.Generator().manual_seed(1)) @ head, torch.arange(rows) % vocab
    # What making the logits took does not hide the peak.
    reset_peak()
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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=shape, nargs="*", default=SHAPES, help="trajectories x response tokens")
    parser.add_argument("--logits", type=shape, nargs="*", default=[(4096, 32_000)], help="tokens x vocabulary")
    parser.add_argument("--only", nargs="+", default=None, help="cases whose name contains one of these")
    parser.add_argument("--repeat", type=int, default=2, help="after the first time, for all but the largest shapes")
    parser.add_argument("--memory-gb", type=float, default=20.0, help="more than this is an error")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (int(args.memory_gb * 2**30), resource.RLIM_INFINITY))

    def wanted(name: str) -> bool:
        return args.only is None or any(word.lower() in name.lower() for word in args.only)

    if not args.json:
        sys.stdout.write(f"| {' | '.join(COLUMNS)} | more |\n|{'---|' * (len(COLUMNS) + 1)}\n")
    for samples, tokens in args.shapes:
        named, x = f"{samples}x{tokens}", Inputs(samples, tokens)
        repeat = 0 if samples * tokens > ONCE_ABOVE else args.repeat
        for name in filter(wanted, PER_TOKEN):
            show(compare(name, named, PER_TOKEN[name](x), repeat), args.json)
        for name in filter(wanted, PER_LENGTH):
            (ours, plain), facts = PER_LENGTH[name](x)
            times = [best(function, seconds(function)[0], repeat) for function in (ours, plain)]
            show(report(name, named, *times) | facts(), args.json)
    for samples in sorted({samples for samples, _ in args.shapes}):
        if wanted("validation metrics"):
            show(compare("validation metrics", f"{samples}", validation(samples), 1), args.json)
    for rows, vocab in args.logits:
        for found in logits_memory(rows, vocab) if wanted("logits") else []:
            show(found, args.json)


if __name__ == "__main__":
    main()
