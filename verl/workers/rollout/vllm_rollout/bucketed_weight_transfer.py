# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Weights from a training or checkpoint-engine process to the rollout worker beside it, as a transaction.

Begin, buckets, commit or abort: every byte has a checksum, every message a deadline, and an error on either side
reaches the other. The two sides live in `verl.transport`; this is their public home, and where their address is made.
"""

from typing import TypedDict

import torch

from verl.launch_info import LaunchInfo
from verl.transport.device_ipc import rebuild_ipc
from verl.transport.receiver import BucketedWeightReceiver, ReceiverThread
from verl.transport.sender import BucketedWeightSender
from verl.transport.stats import DEFAULT_DEADLINE_S, StagedWeights, TransferStats

__all__ = [
    "DEFAULT_DEADLINE_S",
    "BucketedWeightReceiver",
    "BucketedWeightSender",
    "ReceiverThread",
    "StagedWeights",
    "TensorMetadata",
    "TransferStats",
    "rebuild_ipc",
    "weight_socket_handle",
]


class TensorMetadata(TypedDict):
    """Where a tensor lies in a bucket, in the form recipes know."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    offset: int


def weight_socket_handle(info: LaunchInfo, replica_rank: int, local_rank: int) -> str:
    """The address on which the weights of one rollout worker travel.

    It follows from (job, replica, node-local rank) alone, so both sides derive it, whatever devices they see.
    """
    info.ensure_run_dir()
    return f"ipc://{info.socket_path(f'w-r{replica_rank}-l{local_rank}')}"
