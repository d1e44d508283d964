# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Batches of conversations for supervised training: each rank reads its share, and ranks exchange rows to even it out.

Shapes: B conversations of this rank's share, G of all ranks, S tokens of the longest.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset, DistributedSampler

from verl.algorithms.batch_balance import get_seqlen_balanced_partitions
from verl.errors import ConfigError, DataError, UnsupportedError
from verl.utils.dataset.loader import RowLoader, make_train_loader
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.distributed import all_reduce_numbers
from verl.utils.import_utils import load_extern_object
from verl.utils.tensor_collectives import allgather_dict_tensors

Row = Mapping[str, Tensor]
Columns = dict[str, Tensor]
"""`input_ids`, `attention_mask`, `loss_mask` [B, S]."""


def create_sft_dataset(
    data_paths: str | Sequence[str], data_config: Any, tokenizer: Any, processor: Any, max_samples: int = -1
) -> Any:
    """The data set of `data.custom_cls`, else conversations of `MultiTurnSFTDataset`."""
    custom = data_config.get("custom_cls", None) or {}
    cls: Any = MultiTurnSFTDataset
    if custom.get("path", None):
        cls = load_extern_object(custom["path"], custom["name"])
        if not (isinstance(cls, type) and issubclass(cls, Dataset)):
            raise ConfigError("not a data set", where="data.custom_cls", got=cls, expected="a torch Dataset")
    return cls(
        parquet_files=data_paths, tokenizer=tokenizer, config=data_config, processor=processor, max_samples=max_samples
    )


def train_loader(dataset: Any, data_config: Any, *, rank: int, world_size: int, seed: int) -> RowLoader:
    """This rank's rows of each batch of `data.train_batch_size`: shuffled by (seed, epoch), the last part dropped."""
    total = data_config["train_batch_size"]
    if total % world_size:
        raise ConfigError(
            "the batch does not divide over the ranks",
            where="data.train_batch_size",
            got=f"{total} conversations over {world_size} ranks",
            remedy=f"choose a multiple of {world_size}",
        )
    if len(dataset) < total:
        raise ConfigError(
            "the training data set is smaller than one batch",
            where="data.train_files",
            got=f"{len(dataset)} conversations",
            expected=f"at least data.train_batch_size={total}",
        )
    sampler: DistributedSampler[Any] = DistributedSampler(
        dataset, num_replicas=world_size, rank=rank, shuffle=True, seed=seed, drop_last=True
    )
    return make_train_loader(
        dataset,
        # More processes than cores read no faster.
        {"dataloader_num_workers": min(data_config.get("num_workers", 0), len(os.sched_getaffinity(0)))},
        batch_size=total // world_size,
        sampler=sampler,
        collate=list,
    )


def validation_batches(
    dataset: Any, batch_size: int, *, rank: int, world_size: int, pad_token_id: int
) -> Iterator[Columns]:
    """Every conversation once over all ranks; a rank that has none left repeats the first, with nothing to learn."""
    for start in range(0, len(dataset), batch_size * world_size):
        end = min(start + batch_size * world_size, len(dataset))
        mine = list(range(start + rank, end, world_size))
        batch = to_batch([dataset[index] for index in mine or [0]], pad_token_id)
        if not mine:
            batch["loss_mask"].zero_()
        yield batch


def to_batch(rows: Sequence[Row], pad_token_id: int) -> Columns:
    """The rows, padded right to the longest of them.

    Padding that a row brings along is cut off first. Nothing predicts a first token, so it is never learned.
    """
    columns: dict[str, list[Tensor]] = {"input_ids": [], "attention_mask": [], "loss_mask": []}
    for row in rows:
        if "multi_modal_inputs" in row:
            raise UnsupportedError("supervised training on images", remedy="use a text model")
        ids_S, loss_S = row["input_ids"], row["loss_mask"]
        attention_S = row.get("attention_mask", torch.ones_like(ids_S))
        if not ids_S.shape == loss_S.shape == attention_S.shape or ids_S.dim() != 1:
            raise DataError(
                "a row's ids and masks differ in length",
                where="data.custom_cls",
                got=f"input_ids {tuple(ids_S.shape)}, loss_mask {tuple(loss_S.shape)}",
                expected="one vector each, of one length",
            )
        kept = attention_S.bool()
        for name, tensor in (("input_ids", ids_S), ("attention_mask", attention_S), ("loss_mask", loss_S)):
            columns[name].append(tensor[kept])
    batch = {
        name: torch.nn.utils.rnn.pad_sequence(
            tensors, batch_first=True, padding_value=pad_token_id if name == "input_ids" else 0
        )
        for name, tensors in columns.items()
    }
    batch["loss_mask"][:, 0] = 0
    return batch


def even_out(batch: Columns, pad_token_id: int) -> Columns:
    """The same global batch, its rows spread anew so that every rank has about as many tokens, and as many rows.

    Every rank learns all G rows; which of them trains a row changes nothing but the order of sums.
    """
    world_size = dist.get_world_size()
    if world_size == 1:
        return batch
    width = int(all_reduce_numbers([float(batch["input_ids"].shape[1])], op="max")[0])

    def widened(name: str, padding: int) -> Tensor:
        tensor_BS = batch[name]
        return functional.pad(tensor_BS, (0, width - tensor_BS.shape[1]), value=padding).int()

    mine = {name: widened(name, pad_token_id if name == "input_ids" else 0) for name in batch}
    everything = allgather_dict_tensors(mine, world_size, None)
    lengths_G = everything["attention_mask"].sum(-1)
    parts = get_seqlen_balanced_partitions(lengths_G.tolist(), k_partitions=world_size, equal_size=True)
    rows = torch.tensor(parts[dist.get_rank()])
    longest = int(lengths_G[rows].max())
    return {name: tensor[rows, :longest].long() for name, tensor in everything.items()}
