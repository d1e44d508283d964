# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Give memory back, and say how much is used."""

import gc
import logging
import os
import time
from pathlib import Path

import psutil

from verl.platform import current_platform

logger = logging.getLogger(__name__)

_GB = 1 << 30


def aggressive_empty_cache(force_sync: bool = True, max_retries: int = 3) -> None:
    """Collect garbage and return cached device memory; on CPU only the garbage collector runs."""
    platform = current_platform()
    gc.collect()
    if platform.device_type == "cpu":
        return
    for _ in range(max_retries):
        before = platform.memory_info()["reserved"]
        platform.empty_cache()
        if force_sync:
            platform.synchronize()
        # Freed blocks can make further blocks collectable; stop once a round frees under a gigabyte.
        if before - platform.memory_info()["reserved"] < _GB:
            return
        gc.collect()


def get_memory_info() -> dict[str, float]:
    """Gigabytes in use: `cpu_used_gb` of this process, and `allocated_gb`, `reserved_gb` on an accelerator."""
    facts = {"cpu_used_gb": psutil.Process().memory_info().rss / _GB}
    platform = current_platform()
    if platform.device_type != "cpu":
        facts |= {f"{name}_gb": size / _GB for name, size in platform.memory_info().items()}
    return facts


def log_memory_usage(stage: str = "current") -> None:
    """One log line with `get_memory_info`."""
    logger.info("memory at %s: %s", stage, ", ".join(f"{key} {value:.2f}" for key, value in get_memory_info().items()))


def dump_memory_snapshot(
    out_dir: str = "./mem_snapshots", tag: str = "snapshot", sub_dir: str | None = None
) -> Path | None:
    """Write what the device's allocator holds, for torch's memory viewer; a CPU has no such record, and None.

    The file is `<out_dir>/<sub_dir>/<tag>_rank<RANK>_<time in ns>.pickle`.
    """
    platform = current_platform()
    if platform.device_type == "cpu":
        logger.info("no memory snapshot %r: this process computes on the CPU", tag)
        return None
    folder = Path(out_dir) / (sub_dir or "")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{tag}_rank{os.environ.get('RANK', '0')}_{time.time_ns()}.pickle"
    platform.device_module.memory._dump_snapshot(str(path))
    return path
