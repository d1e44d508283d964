# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Supervised batches: every conversation once over all ranks, and nothing learned that no token predicts."""

import itertools

import pytest
import torch
from torch.utils.data import Dataset

from verl.errors import ConfigError, DataError
from verl.trainer.sft_data import create_sft_dataset, to_batch, train_loader, validation_batches


def row(ids: list[int], learned: list[int], attention: list[int] | None = None) -> dict[str, torch.Tensor]:
    columns = {"input_ids": ids, "loss_mask": learned} | ({} if attention is None else {"attention_mask": attention})
    return {name: torch.tensor(values) for name, values in columns.items()}


class Numbers(Dataset):
    """Row i holds i+1 tokens i+1."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return row([index + 1] * (index + 1), [1] * (index + 1))


def test_rows_are_padded_to_the_longest_and_a_first_token_is_never_learned() -> None:
    batch = to_batch([row([5, 6], [1, 1]), row([7, 8, 9], [0, 1, 1])], pad_token_id=3)
    assert batch["input_ids"].tolist() == [[5, 6, 3], [7, 8, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["loss_mask"].tolist() == [[0, 1, 0], [0, 1, 1]]


def test_padding_that_a_row_brings_along_is_cut_off() -> None:
    batch = to_batch([row([0, 0, 5, 6, 0], [0, 0, 0, 1, 0], [0, 0, 1, 1, 0])], pad_token_id=0)
    assert batch["input_ids"].tolist() == [[5, 6]] and batch["loss_mask"].tolist() == [[0, 1]]


def test_masks_of_another_length_are_refused_with_both_shapes() -> None:
    with pytest.raises(DataError, match=r"input_ids \(2,\), loss_mask \(3,\)"):
        to_batch([row([1, 2], [0, 1, 1])], pad_token_id=0)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_the_ranks_together_train_the_same_conversations_in_each_batch(world_size: int) -> None:
    def batches(ranks: int) -> list[set[int]]:
        loaders = [
            train_loader(Numbers(18), {"train_batch_size": 4}, rank=rank, world_size=ranks, seed=7)
            for rank in range(ranks)
        ]
        return [{int(row["input_ids"][0]) for rows in parts for row in rows} for parts in zip(*loaders, strict=True)]

    got = batches(world_size)
    assert got == batches(1)
    assert [len(batch) for batch in got] == [4, 4, 4, 4] and len(set().union(*got)) == 16


def test_each_epoch_has_an_order_of_its_own_and_resumes_inside_it() -> None:
    def loader() -> object:
        return train_loader(Numbers(16), {"train_batch_size": 4}, rank=0, world_size=1, seed=1)

    def ids(batches: object) -> list[list[int]]:
        return [[int(row["input_ids"][0]) for row in rows] for rows in batches]

    whole = loader()
    first, second = ids(whole), ids(whole)
    assert first != second
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second))
    half = loader()
    iterator = iter(half)
    next(iterator), next(iterator)
    resumed = loader()
    resumed.load_state_dict(half.state_dict())
    assert ids(resumed) == first[2:] and ids(resumed) == second


def test_a_batch_that_does_not_divide_over_the_ranks_is_refused() -> None:
    with pytest.raises(ConfigError, match="6 conversations over 4 ranks"):
        train_loader(Numbers(16), {"train_batch_size": 6}, rank=0, world_size=4, seed=0)


def test_fewer_conversations_than_one_batch_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"3 conversations.*train_batch_size=4"):
        train_loader(Numbers(3), {"train_batch_size": 4}, rank=0, world_size=1, seed=0)


@pytest.mark.parametrize(("count", "world_size"), [(7, 1), (7, 2), (9, 4), (1, 4)])
def test_validation_counts_every_conversation_once_and_gives_every_rank_as_many_batches(
    count: int, world_size: int
) -> None:
    per_rank = [
        list(validation_batches(Numbers(count), 2, rank=rank, world_size=world_size, pad_token_id=0))
        for rank in range(world_size)
    ]
    assert len({len(batches) for batches in per_rank}) == 1
    learned = [
        int(ids[0])
        for batches in per_rank
        for batch in batches
        for ids, mask in zip(batch["input_ids"], batch["loss_mask"], strict=True)
        if mask.any() or int(ids[0]) == 1
    ]
    # A conversation of one token has nothing to learn, and is also what stands in for a missing one.
    assert sorted(number for number in learned if number > 1) == list(range(2, count + 1))


def test_a_class_that_is_no_data_set_is_refused(tmp_path: object) -> None:
    path = tmp_path / "mine.py"
    path.write_text("class Mine:\n    pass\n")
    with pytest.raises(ConfigError, match=r"data\.custom_cls"):
        create_sft_dataset([], {"custom_cls": {"path": str(path), "name": "Mine"}}, None, None)
