# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Public path of the batch balance: `verl.algorithms.batch_balance` and `verl.algorithms.micro_batches`."""

from verl.algorithms.batch_balance import (
    calculate_workload,
    ceildiv,
    get_group_balanced_partitions,
    get_reverse_idx,
    get_seqlen_balanced_partitions,
    greedy_partition,
    karmarkar_karp,
    log_seqlen_unbalance,
    roundup_divisible,
)
from verl.algorithms.micro_batches import prepare_dynamic_batch, rearrange_micro_batches, restore_dynamic_batch

__all__ = [
    "calculate_workload",
    "ceildiv",
    "get_group_balanced_partitions",
    "get_reverse_idx",
    "get_seqlen_balanced_partitions",
    "greedy_partition",
    "karmarkar_karp",
    "log_seqlen_unbalance",
    "prepare_dynamic_batch",
    "rearrange_micro_batches",
    "restore_dynamic_batch",
    "roundup_divisible",
]
