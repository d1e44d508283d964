# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Start and end of the process group that the training ranks share."""

import logging
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from verl.errors import CheckpointError
from verl.platform import current_platform

# Long enough for rank 0 to read a large checkpoint while the others wait in the first broadcast.
DEFAULT_TIMEOUT_S = 600


def initialize_global_process_group(
    timeout_second: int | None = None, backend: str | None = None
) -> tuple[int, int, int]:
    """Join the group described by RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; without them, be a group of one.

    Returns `(local_rank, rank, world_size)`. Calling it again returns the facts of the group that exists.
    `backend` defaults to the platform's collective; accelerators get gloo for host tensors beside it.
    """
    platform = current_platform()
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if not dist.is_initialized():
        timeout = timedelta(seconds=timeout_second or DEFAULT_TIMEOUT_S)
        if platform.device_type != "cpu":
            platform.set_device(local_rank)
        names = backend or _backend_names(platform.device_type, platform.collective)
        if "RANK" in os.environ and "MASTER_PORT" in os.environ:
            dist.init_process_group(names, timeout=timeout)
        else:
            dist.init_process_group(names, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
    return local_rank, dist.get_rank(), dist.get_world_size()


def destroy_global_process_group() -> None:
    """Leave the group if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def leave_process(code: int) -> NoReturn:
    """End this process now, with everything written and the group left.

    In about one of ten runs of two ranks a native thread of torch (2.13, gloo) outlives its owner in the interpreter's
    own end, and what had finished dies with "terminate called without an active exception".
    """
    destroy_global_process_group()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def all_reduce_numbers(values: list[float], group: dist.ProcessGroup | None = None, op: str = "sum") -> list[float]:
    """Element-wise sum, max or min of a few Python numbers over the ranks of `group`, in float64."""
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return list(values)
    tensor_N = torch.tensor(values, dtype=torch.float64, device=current_platform().device_type)
    dist.all_reduce(
        tensor_N, op={"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}[op], group=group
    )
    return tensor_N.tolist()


def broadcast_object(value: Any) -> Any:
    """Rank 0's `value` on every rank of the default group."""
    if dist.get_world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def succeed_together(work: Callable[[], None], what: str) -> None:
    """Run a part of a checkpoint on every rank, and go on only if all succeeded.

    Raises
    ------
    CheckpointError
        on every rank; the one that failed names the cause.
    """
    error: Exception | None = None
    try:
        work()
    except Exception as caught:  # every failure must reach the other ranks before it is raised
        error = caught
    failed = all_reduce_numbers([float(error is not None)])[0]
    if failed:
        raise CheckpointError(
            f"{int(failed)} of {dist.get_world_size()} ranks could not {what}" + (f": {error}" if error else ""),
            where=f"rank {dist.get_rank()}",
            remedy="see the log of the rank that names the cause; earlier checkpoints are untouched",
        ) from error


def _backend_names(device_type: str, collective: str) -> str:
    return collective if device_type == "cpu" else f"cpu:gloo,{device_type}:{collective}"
