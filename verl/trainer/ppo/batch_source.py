# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What batch sources share: rows that fill up a batch, and rows spread evenly over ranks."""

import numpy as np
import torch

from verl.algorithms.batch_balance import get_seqlen_balanced_partitions, log_seqlen_unbalance
from verl.protocol import DataProto
from verl.trainer.ppo.steps import Metrics

PAD_UID = "padding"


def pad_with_masked_rows(batch: DataProto, multiple: int) -> DataProto:
    """Fill up to a multiple of `multiple` rows with copies of row 0 whose response mask and scores are zero.

    Padding rows have a uid of their own, so that no group's statistics see them; no loss or metric counts them.
    """
    missing = -len(batch) % multiple
    if not missing:
        return batch
    filler = batch.select_idxs(np.zeros(missing, dtype=np.int64))
    for key in ("response_mask", "rm_scores"):
        if key in filler.batch:
            filler.batch[key] = torch.zeros_like(filler.batch[key])
    if "reward_error" in filler.non_tensor_batch:
        # Else a failure in row 0 would be counted once for each copy.
        filler.non_tensor_batch["reward_error"] = np.full(missing, None, dtype=object)
    if "uid" in filler.non_tensor_batch:
        filler.non_tensor_batch["uid"] = np.array([f"{PAD_UID}-{i}" for i in range(missing)], dtype=object)
    padded = DataProto.concat([batch, filler])
    padded.meta_info |= batch.meta_info
    return padded


def without_padding(batch: DataProto) -> DataProto:
    """The rows that `pad_with_masked_rows` did not add, in their order; token counts of the batch follow."""
    uids = batch.non_tensor_batch.get("uid")
    real = [] if uids is None else [i for i, uid in enumerate(uids) if not str(uid).startswith(f"{PAD_UID}-")]
    if uids is None or len(real) == len(batch):
        return batch
    rows = batch.select_idxs(np.array(real, dtype=np.int64))
    rows.meta_info = batch.meta_info | {"global_token_num": rows.batch["attention_mask"].sum(-1).tolist()}
    return rows


def balance_batch(batch: DataProto, dp_size: int, logging_prefix: str = "global_seqlen") -> Metrics:
    """Reorder rows in place so that the contiguous share of each rank has about the same number of tokens."""
    lengths = batch.batch["attention_mask"].sum(-1).tolist()
    parts = get_seqlen_balanced_partitions(lengths, k_partitions=dp_size, equal_size=True)
    batch.reorder(torch.tensor([index for part in parts for index in part]))
    return log_seqlen_unbalance(seqlen_list=lengths, partitions=parts, prefix=logging_prefix)
