# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The batches of all ranks of a process group, on every rank."""

from typing import Any

import torch
import torch.distributed as dist

from verl.protocol.data_proto import DataProto


def all_gather_data_proto(data: DataProto, process_group: dist.ProcessGroup) -> None:
    """Replace `data` by the rows of all ranks in rank order, in place; tensors come back to their device."""
    parts: list[DataProto | None] = [None] * dist.get_world_size(process_group)
    device = next((tensor.device for tensor in data.batch.values()), None) if data.batch is not None else None
    dist.all_gather_object(parts, data, group=process_group)
    joined = DataProto.concat([part for part in parts if part is not None])
    batch: Any = joined.batch
    data.batch = batch if device in (None, torch.device("cpu")) else batch.to(device)
    data.non_tensor_batch, data.meta_info = joined.non_tensor_batch, joined.meta_info
