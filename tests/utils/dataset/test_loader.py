# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Loaders: order by (seed, epoch), resumption at any row, changes noticed."""

import logging
from typing import Any

import pytest
from omegaconf import OmegaConf
from torch.utils.data import Dataset, SequentialSampler

from verl.errors import ConfigError
from verl.experimental.dataset.sampler import AbstractCurriculumSampler
from verl.utils.dataset.loader import RowLoader, make_sampler, make_train_loader, make_val_loader
from verl.utils.dataset.rl_dataset import collate_fn


class Rows(Dataset):
    def __init__(self, count: int) -> None:
        self.dataframe = [{"row": index} for index in range(count)]

    def __len__(self) -> int:
        return len(self.dataframe)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"row": index}


def loader(rows: int, **config: Any) -> Any:
    options = {"train_batch_size": 4, "gen_batch_size": None, "shuffle": True, "seed": 3, "dataloader_num_workers": 0}
    return make_train_loader(Rows(rows), OmegaConf.create(options | config))


def rows_of(batches: Any) -> list[list[int]]:
    return [batch["row"].tolist() for batch in batches]


def test_the_generation_batch_size_falls_back_to_the_training_batch_size() -> None:
    assert loader(8).batch_size == 4
    assert loader(8, gen_batch_size=2).batch_size == 2
    with pytest.raises(ConfigError, match=r"got 0.*positive integer"):
        loader(8, gen_batch_size=0)
    with pytest.raises(ConfigError, match="smaller than one batch"):
        loader(3)


def test_each_epoch_has_an_order_of_its_own_that_repeats() -> None:
    first = loader(10)
    epochs = [rows_of(first) for _ in range(3)]
    assert [len(batches) for batches in epochs] == [2, 2, 2]
    assert epochs[0] != epochs[1] != epochs[2]
    again = loader(10)
    assert [rows_of(again) for _ in range(3)] == epochs
    assert rows_of(loader(10, seed=4)) != epochs[0]
    assert rows_of(loader(8, shuffle=False)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_last_rows_of_an_epoch_may_be_kept(workers: int) -> None:
    rows = Rows(10)
    kept = RowLoader(rows, 4, SequentialSampler(rows), drop_last=False, num_workers=workers, collate_fn=collate_fn)
    places = []
    for batch in kept:
        places.append((len(batch["row"]), kept.uids[-1], kept.rows_done))
    assert places == [(4, "0-3-3", 4), (4, "0-7-7", 8), (2, "0-9-9", 10)]
    assert len(kept) == 3 and kept.epoch == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop_after", [1, 2, 3, 5])
def test_a_resumed_run_sees_the_rows_that_were_left(stop_after: int, workers: int) -> None:
    whole = loader(12)
    expected = [batch for _ in range(3) for batch in rows_of(whole)]
    first = loader(12, dataloader_num_workers=workers)
    seen = []
    while len(seen) < stop_after:
        for batch in first:
            seen.append(batch["row"].tolist())
            if len(seen) == stop_after:
                break
    state = first.state_dict()
    second = loader(12)
    second.load_state_dict(state)
    while second.epoch < 3:
        seen += rows_of(second)
    assert seen == expected


def test_a_state_at_the_end_of_an_epoch_goes_on_with_the_next() -> None:
    # 8 rows in batches of 4: step 2 is the end of epoch 0, and the iterator has not been asked for more.
    first = loader(8)
    batches = iter(first)
    next(batches), next(batches)
    second = loader(8)
    second.load_state_dict(first.state_dict())
    assert (second.epoch, second.rows_done) == (1, 0)
    expected = loader(8)
    list(expected)
    assert rows_of(second) == rows_of(expected)


def test_another_batch_size_goes_on_behind_the_same_row(caplog: pytest.LogCaptureFixture) -> None:
    first = loader(12)
    seen = [row for _, batch in zip(range(1), first, strict=False) for row in batch["row"].tolist()]
    second = loader(12, train_batch_size=2)
    with caplog.at_level(logging.WARNING):
        second.load_state_dict(first.state_dict())
    assert "batch size was 4 and is 2 now" in caplog.text
    seen += [row for batch in second for row in batch["row"].tolist()]
    assert sorted(seen) == list(range(12))


@pytest.mark.parametrize("rows", [5, 20])
def test_another_data_set_starts_at_its_first_row_and_says_so(rows: int, caplog: pytest.LogCaptureFixture) -> None:
    first = loader(10, shuffle=False)
    next(iter(first))
    second = loader(rows, shuffle=False)
    with caplog.at_level(logging.WARNING):
        second.load_state_dict(first.state_dict())
    assert f"10 rows then, {rows} now" in caplog.text
    assert rows_of(second)[0] == [0, 1, 2, 3]


def test_a_foreign_state_is_not_applied(caplog: pytest.LogCaptureFixture) -> None:
    second = loader(8)
    with caplog.at_level(logging.WARNING):
        second.load_state_dict({"_snapshot": {}})
    assert "of another kind" in caplog.text and second.rows_done == 0


def test_the_validation_loader_drops_nothing_and_starts_anew_each_time() -> None:
    config = OmegaConf.create({"val_batch_size": None, "dataloader_num_workers": 0})
    whole = make_val_loader(Rows(5), config)
    assert rows_of(whole) == rows_of(whole) == [[0, 1, 2, 3, 4]]
    assert rows_of(make_val_loader(Rows(5), OmegaConf.create({"val_batch_size": 2}))) == [[0, 1], [2, 3], [4]]


SAMPLER = """
from verl.experimental.dataset.sampler import AbstractCurriculumSampler
class Backwards(AbstractCurriculumSampler):
    def __init__(self, data_source, data_config):
        self.rows = list(range(len(data_source)))[::-1]
        self.updates = []
    def __iter__(self):
        return iter(self.rows)
    def __len__(self):
        return len(self.rows)
    def update(self, batch):
        self.updates.append(batch)
class NoSampler: pass
class Endless(AbstractCurriculumSampler):
    def __init__(self, data_source, data_config): pass
    def __iter__(self):
        return iter(int, 1)
    def update(self, batch): pass
"""


def test_a_custom_sampler_reads_in_this_process_only(tmp_path: Any) -> None:
    path = tmp_path / "sampler.py"
    path.write_text(SAMPLER)
    section = {"class_path": str(path), "class_name": "Backwards"}
    custom = loader(8, sampler=section)
    assert isinstance(custom.row_sampler, AbstractCurriculumSampler)
    assert rows_of(custom) == [[7, 6, 5, 4], [3, 2, 1, 0]]
    # A sampler that knows nothing of resumption is wound forward.
    half = loader(8, sampler=section)
    next(iter(half))
    rest = loader(8, sampler=section)
    rest.load_state_dict(half.state_dict())
    assert rows_of(rest) == [[3, 2, 1, 0]]
    with pytest.raises(ConfigError, match="dataloader_num_workers"):
        loader(8, sampler=section, dataloader_num_workers=2)
    with pytest.raises(ConfigError, match="not a sampler"):
        make_sampler(OmegaConf.create({"sampler": section | {"class_name": "NoSampler"}}), Rows(2))
    # Every count of steps, and every resumption, would ask for its length and fail there.
    with pytest.raises(ConfigError, match="__len__"):
        make_sampler(OmegaConf.create({"sampler": section | {"class_name": "Endless"}}), Rows(2))
