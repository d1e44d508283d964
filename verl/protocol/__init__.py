# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The batch that travels: `DataProto`, its future, and functions on it."""

from verl.protocol.auto_padding import DataProtoConfig
from verl.protocol.batch_data import BatchData
from verl.protocol.data_proto import DataProto, DataProtoItem, collate_fn
from verl.protocol.future import DataProtoFuture
from verl.protocol.gather import all_gather_data_proto
from verl.protocol.merge import union_numpy_dict, union_tensor_dict
from verl.protocol.reshape import fold_batch_dim, pad_dataproto_to_divisor, unfold_batch_dim, unpad_dataproto
from verl.protocol.wire import (
    deserialize_single_tensor,
    deserialize_tensordict,
    serialize_single_tensor,
    serialize_tensordict,
)

__all__ = [
    "BatchData",
    "DataProto",
    "DataProtoConfig",
    "DataProtoFuture",
    "DataProtoItem",
    "all_gather_data_proto",
    "collate_fn",
    "deserialize_single_tensor",
    "deserialize_tensordict",
    "fold_batch_dim",
    "pad_dataproto_to_divisor",
    "serialize_single_tensor",
    "serialize_tensordict",
    "unfold_batch_dim",
    "union_numpy_dict",
    "union_tensor_dict",
    "unpad_dataproto",
]
