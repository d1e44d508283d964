# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Cut a batch into micro-batches under a token budget, and put results back in order.

Shapes: B trajectories, S prompt + response.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from verl.algorithms.batch_balance import (
    Partitions,
    calculate_workload,
    get_reverse_idx,
    partition_by_budget,
    roundup_divisible,
)
from verl.errors import DataError


def rearrange_micro_batches(
    batch: Any,
    max_token_len: int,
    dp_group: Any = None,
    num_batches_divided_by: int | None = None,
    same_micro_num_in_dp: bool = True,
    min_num_micro_batch: int | None = None,
    use_dynamic_bsz_balance: bool = True,
    force_group_size: int = 1,
) -> tuple[list[Any], Partitions]:
    """Micro-batches of a TensorDict with `attention_mask` [B, S] (or nested `input_ids`), and the rows of each.

    Parameters
    ----------
    max_token_len : no micro-batch has more real tokens than this; a longer sample is an error.
    dp_group, same_micro_num_in_dp : all ranks of the group (the default group if None) get the same number.
    num_batches_divided_by, min_num_micro_batch : the number is a multiple of the one and at least the other.
    use_dynamic_bsz_balance : order by cost, cheap ones at both ends, so that ranks and pipelines run in step.
    force_group_size : this many neighbouring rows stay together.
    """
    lengths = effective_lengths(batch)
    if len(lengths) % force_group_size:
        raise DataError(
            "rows do not divide into groups", got=len(lengths), expected=f"a multiple of {force_group_size}"
        )
    grouped = [sum(lengths[start : start + force_group_size]) for start in range(0, len(lengths), force_group_size)]
    parts = partition_by_budget(grouped, max_token_len, min_num_micro_batch)
    number = len(parts)
    if same_micro_num_in_dp and dist.is_available() and dist.is_initialized():
        number = _largest_in_group(number, dp_group)
    if num_batches_divided_by is not None:
        number = roundup_divisible(number, num_batches_divided_by)
    if number != len(parts):
        if number > len(grouped):
            raise DataError(
                "fewer samples than micro-batches",
                got=len(grouped),
                expected=f"at least {number}, which other ranks or num_batches_divided_by ask for",
                remedy="give every rank the same number of samples, balanced by length",
            )
        parts = partition_by_budget(grouped, max_token_len, number)
    if use_dynamic_bsz_balance:
        parts = _cheap_at_both_ends(parts, calculate_workload(grouped).tolist())
    rows = [[group * force_group_size + i for group in part for i in range(force_group_size)] for part in parts]
    return [batch[torch.tensor(part)] for part in rows], rows


def effective_lengths(batch: Any) -> list[int]:
    """Real tokens of each row, padding left out."""
    keys = batch.keys()
    if "attention_mask" in keys and not batch["attention_mask"].is_nested:
        return batch["attention_mask"].sum(-1).tolist()
    input_ids = batch["input_ids"]
    if not input_ids.is_nested:
        raise DataError("token counts need attention_mask or nested input_ids", got=sorted(keys))
    return input_ids.offsets().diff().tolist()


def _largest_in_group(number: int, group: Any) -> int:
    # NCCL, RCCL and HCCL reduce device tensors only; gloo, alone or beside them, host tensors.
    on_device = dist.get_backend(group) in ("nccl", "hccl")
    device = torch.accelerator.current_accelerator() if on_device else "cpu"
    largest = torch.tensor(number, device=device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    return int(largest.item())


def _cheap_at_both_ends(parts: Partitions, workloads: Sequence[int]) -> Partitions:
    by_cost = sorted(parts, key=lambda part: (-sum(workloads[item] for item in part), part))
    return by_cost[::2][::-1] + by_cost[1::2]


def prepare_dynamic_batch(
    data: Any,
    max_token_len: int,
    dp_group: Any = None,
    num_batches_divided_by: int | None = None,
    same_micro_num_in_dp: bool = True,
    min_num_micro_batch: int | None = None,
    use_dynamic_bsz_balance: bool = True,
) -> tuple[list[Any], Partitions]:
    """`rearrange_micro_batches` for a DataProto: its parts, object columns included, and the rows of each."""
    _, rows = rearrange_micro_batches(
        data.batch,
        max_token_len,
        dp_group=dp_group,
        num_batches_divided_by=num_batches_divided_by,
        same_micro_num_in_dp=same_micro_num_in_dp,
        min_num_micro_batch=min_num_micro_batch,
        use_dynamic_bsz_balance=use_dynamic_bsz_balance,
    )
    return [data.select_idxs(part) for part in rows], rows


def restore_dynamic_batch(data: Tensor, batch_idx_list: Partitions) -> Tensor:
    """Rows in the order of the micro-batches [B, ...] back in the order of the batch."""
    return data[torch.tensor(get_reverse_idx([row for part in batch_idx_list for row in part]), device=data.device)]


def split_evenly(batch_size: int, num_parts: int) -> Partitions:
    """Neighbouring rows in parts whose sizes differ by at most one: 9 in 4 are 3, 2, 2, 2."""
    sizes = [batch_size // num_parts + (part < batch_size % num_parts) for part in range(num_parts)]
    starts = [sum(sizes[:part]) for part in range(num_parts)]
    return [list(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]
