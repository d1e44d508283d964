# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Speed of the weight transfer between two processes here, against a plain copy of the same bytes.

python tools/bench.py [--mb 800] [--bucket-mb 64]
"""

import argparse
import asyncio
import multiprocessing
import sys
import time
from collections.abc import Iterator

import torch

from verl.launch_info import LaunchInfo
from verl.transport.receiver import BucketedWeightReceiver
from verl.transport.sender import BucketedWeightSender

TENSOR_BYTES = 16 << 20
DEADLINE_S = 120.0


def tensors(total_bytes: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Equal float32 tensors of 16 MB, one at a time."""
    tensor = torch.ones(TENSOR_BYTES // 4)
    for index in range(max(1, total_bytes // TENSOR_BYTES)):
        yield f"w{index}", tensor


def receive(handle: str) -> None:
    """Take everything and keep nothing."""
    receiver = BucketedWeightReceiver(handle, torch.device("cpu"), use_shm=True, deadline_s=DEADLINE_S)
    for _ in receiver.buckets():
        pass


def copy_gb_per_s(total_bytes: int) -> float:
    """A warm memcpy of the same bytes, tensor by tensor."""
    source, target = torch.ones(TENSOR_BYTES // 4), torch.empty(TENSOR_BYTES // 4)
    target.copy_(source)
    count = max(1, total_bytes // TENSOR_BYTES)
    start_s = time.perf_counter()
    for _ in range(count):
        target.copy_(source)
    return count * TENSOR_BYTES / (time.perf_counter() - start_s) / 1e9


def main() -> int:
    """Measure and say it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=800)
    parser.add_argument("--bucket-mb", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    info = LaunchInfo.new()
    directory = info.ensure_run_dir()
    handle = f"ipc://{info.socket_path('bench')}"
    child = multiprocessing.get_context("spawn").Process(target=receive, args=(handle,))
    child.start()
    try:
        sender = BucketedWeightSender(handle, options.bucket_mb, use_shm=True, deadline_s=DEADLINE_S)
        stats = asyncio.run(sender.async_send_weights(tensors(options.mb << 20)))
    finally:
        child.join(10)
        if child.is_alive():
            child.terminate()
            child.join()
        if not any(directory.iterdir()):
            directory.rmdir()
    speed, plain = stats.bytes / stats.seconds / 1e9, copy_gb_per_s(options.mb << 20)
    sys.stdout.write(
        f"{stats.bytes / 1e6:.0f} MB in {stats.buckets} buckets over {stats.medium}: {speed:.2f} GB/s; "
        f"plain copy {plain:.2f} GB/s; ratio {speed / plain:.2f}\n"
    )
    return child.exitcode or 0


if __name__ == "__main__":
    sys.exit(main())
