# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Speed of one weight transfer between two processes, as a ratio to a plain copy of the same bytes in the same run.

    python benchmarks/weight_transfer.py --megabytes 800 --bucket-megabytes 32 128 --repeat 3

The receiver stages: it copies every byte out of shared memory into memory of its own and checks it. A transfer is thus
two copies and two checksums; two processes share the work, so with free cores the ceiling is the speed of one copy.
"""

import argparse
import asyncio
import json
import mmap
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from verl.launch_info import LaunchInfo
from verl.transport.receiver import BucketedWeightReceiver
from verl.transport.sender import BucketedWeightSender
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import weight_socket_handle


def layers(megabytes: int) -> dict[str, torch.Tensor]:
    """A model's worth of tensors: most bytes in matrices of 8 to 32 MB, some vectors between them."""
    weights: dict[str, torch.Tensor] = {}
    left, index = megabytes << 20, 0
    while left > 0:
        size = min(left, (8 << 20) * (1 + index % 4))
        weights[f"layers.{index}.weight"] = torch.randint(0, 255, (size // 4,), dtype=torch.int32).view(torch.float32)
        weights[f"layers.{index}.norm"] = torch.ones(1024)
        left, index = left - size, index + 1
    return weights


def receive(handle: str, times: int) -> None:
    torch.set_num_threads(1)
    for _ in range(times):
        BucketedWeightReceiver(handle, torch.device("cpu"), True).stage()


def fresh_like(tensor: torch.Tensor) -> torch.Tensor:
    """Memory that the kernel has yet to give; `empty_like` may hand out again what the last round freed."""
    memory = mmap.mmap(-1, tensor.numel() * tensor.element_size())
    return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)


def plain_copy_s(weights: dict[str, torch.Tensor], repeat: int) -> tuple[float, float]:
    """Best seconds for copying all tensors: into fresh memory, and into memory that is mapped already."""
    fresh, warm = [], []
    for _ in range(repeat):
        started = time.perf_counter()
        copies = [fresh_like(tensor).copy_(tensor) for tensor in weights.values()]
        fresh.append(time.perf_counter() - started)
        started = time.perf_counter()
        for copy, tensor in zip(copies, weights.values(), strict=True):
            copy.copy_(tensor)
        warm.append(time.perf_counter() - started)
        del copies
    return min(fresh), min(warm)


def measure(weights: dict[str, torch.Tensor], bucket_megabytes: int, repeat: int, handle: str) -> dict[str, float]:
    process = multiprocessing.get_context("spawn").Process(target=receive, args=(handle, repeat + 1))
    process.start()
    seconds = []

    async def run() -> None:
        # The first transfer waits for the receiver's imports and is not counted.
        for _ in range(repeat + 1):
            sender = BucketedWeightSender(handle, bucket_megabytes, True)
            stats = await sender.async_send_weights(stream(weights))
            seconds.append(stats.seconds)

    asyncio.run(run())
    process.join()
    fresh_s, warm_s = plain_copy_s(weights, repeat)
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    best = min(seconds[1:])
    return {
        "bucket_megabytes": bucket_megabytes,
        "transfer_s": round(best, 4),
        "transfer_gb_per_s": round(nbytes / best / 1e9, 2),
        "ratio_to_copy_into_fresh_memory": round(fresh_s / best, 3),
        "ratio_to_copy_into_mapped_memory": round(warm_s / best, 3),
    }


def stream(weights: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    yield from weights.items()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=800)
    parser.add_argument("--bucket-megabytes", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    weights = layers(options.megabytes)
    with tempfile.TemporaryDirectory(prefix="vb-") as directory:
        handle = weight_socket_handle(LaunchInfo("bench", Path(directory) / "run"), 0, 0)
        for bucket in options.bucket_megabytes:
            sys.stdout.write(json.dumps(measure(weights, bucket, options.repeat, handle)) + "\n")


if __name__ == "__main__":
    main()
