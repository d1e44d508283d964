# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Loaders of rows: shuffled by (seed, epoch), resumable at any row, aware of a changed data set."""

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sized
from typing import Any, Protocol

import torch
import xxhash
from torch.utils.data import DataLoader, Sampler, SequentialSampler

from verl.errors import ConfigError
from verl.experimental.dataset.sampler import AbstractSampler
from verl.utils.dataset.rl_dataset import SizedDataset, collate_fn
from verl.utils.import_utils import load_extern_object

__all__ = ["EpochSampler", "RowLoader", "make_sampler", "make_train_loader", "make_val_loader"]

logger = logging.getLogger(__name__)


class SizedSampler(Protocol):
    """What is asked of a sampler: an order of rows, and how many rows that is."""

    def __iter__(self) -> Iterator[int]: ...

    def __len__(self) -> int: ...


class EpochSampler(Sampler[int]):
    """A permutation that depends on (seed, epoch) only, so that an epoch has one order however often a run resumes."""

    def __init__(self, data_source: Any, seed: int) -> None:
        self.data_source = data_source
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return iter(torch.randperm(len(self.data_source), generator=generator).tolist())

    def __len__(self) -> int:
        return len(self.data_source)


class _Resumable(Sampler[int]):
    """Any sampler, with its first `skip` indices of one pass left out."""

    def __init__(self, sampler: SizedSampler) -> None:
        self.sampler = sampler
        # Rows that were asked for and have not come out of the loader yet.
        self.given: deque[int] = deque()
        self.skip = 0

    def __iter__(self) -> Iterator[int]:
        skip, self.skip = self.skip, 0
        self.given.clear()
        for row in itertools.islice(iter(self.sampler), skip, None):
            self.given.append(row)
            yield row

    def __len__(self) -> int:
        return len(self.sampler) - self.skip


class RowLoader(DataLoader):
    """Batches of rows that know their position.

    One `iter` is the rest of the current epoch; the next is the following epoch. The state counts rows handed
    out, so what worker processes have read ahead is not lost on resume. `uids` names the prompts of the last batch,
    "<epoch>-<row>-<place in the epoch>": the same in every life of the run and in every trainer, and different for
    a row that a sampler gives twice.
    """

    # torch's Dataset promises no length.
    dataset: Any
    batch_size: int

    def __init__(self, dataset: Any, batch_size: int, sampler: SizedSampler, drop_last: bool, **kwargs: Any) -> None:
        self.row_sampler = sampler
        self.epoch = 0
        self.rows_done = 0
        self.uids: list[str] = []
        self._resumable = _Resumable(sampler)
        super().__init__(dataset, batch_size=batch_size, sampler=self._resumable, drop_last=drop_last, **kwargs)

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        rows, size = len(self.row_sampler), self.batch_size
        return rows // size if self.drop_last else -(-rows // size)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch says its private class, and needs any iterator
        if hasattr(self.row_sampler, "set_epoch"):
            self.row_sampler.set_epoch(self.epoch)
        self._resumable.skip = self.rows_done
        for batch in super().__iter__():
            # Fewer where the last batch of an epoch is kept.
            given = self._resumable.given
            rows = [given.popleft() for _ in range(min(self.batch_size, len(given)))]
            self.uids = [f"{self.epoch}-{int(row)}-{place}" for place, row in enumerate(rows, start=self.rows_done)]
            self.rows_done += len(rows)
            yield batch
        self.epoch, self.rows_done = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        state = {
            "epoch": self.epoch,
            "rows_done": self.rows_done,
            "batch_size": self.batch_size,
            "num_rows": len(self.dataset),
            "fingerprint": fingerprint(self.dataset),
        }
        if hasattr(self.row_sampler, "state_dict"):
            state["sampler"] = self.row_sampler.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state stopped; with other rows, start the epoch at its first row and say so."""
        if "rows_done" not in state:
            logger.warning(
                "the loader state in the checkpoint is of another kind; the data set starts at its first row"
            )
            return
        self.epoch, self.rows_done = state["epoch"], state["rows_done"]
        if (state["num_rows"], state["fingerprint"]) != (len(self.dataset), fingerprint(self.dataset)):
            logger.warning(
                "the data set has changed since the checkpoint (%d rows then, %d now); epoch %d starts at row 0",
                state["num_rows"], len(self.dataset), self.epoch,
            )  # fmt: skip
            self.rows_done = 0
        elif state["batch_size"] != self.batch_size:
            logger.warning(
                "the batch size was %d and is %d now; the epoch goes on after its row %d",
                state["batch_size"], self.batch_size, self.rows_done,
            )  # fmt: skip
        if "sampler" in state and hasattr(self.row_sampler, "load_state_dict"):
            self.row_sampler.load_state_dict(state["sampler"])
        left = len(self.row_sampler) - self.rows_done
        if left < (self.batch_size if self.drop_last else 1):
            # The epoch had been used up when the state was taken.
            self.epoch, self.rows_done = self.epoch + 1, 0


def fingerprint(dataset: Any) -> str:
    """A short text that changes when the rows do: their number and the first and last row."""
    while hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    rows = getattr(dataset, "dataframe", None)
    if rows is None or len(rows) == 0:
        return str(len(dataset))
    return f"{len(rows)}:{_digest(rows[0])}:{_digest(rows[len(rows) - 1])}"


def _digest(row: Any) -> str:
    return xxhash.xxh3_64_hexdigest(repr(row).encode())


def make_sampler(data_config: Any, dataset: Any) -> SizedSampler:
    """`data.sampler` if set, else shuffled by `data.seed` (`data.shuffle`), else in the order of the files."""
    custom = data_config.get("sampler", None) or {}
    if custom.get("class_path", None):
        cls = load_extern_object(custom["class_path"], custom["class_name"])
        if not (isinstance(cls, type) and issubclass(cls, AbstractSampler)):
            raise ConfigError("not a sampler", where="data.sampler", got=cls, expected="a subclass of AbstractSampler")
        if not issubclass(cls, Sized):
            raise ConfigError(
                "the sampler does not say how many rows an epoch has",
                where="data.sampler",
                got=cls,
                expected="a __len__: the number of steps and the place to resume at depend on it",
            )
        if data_config.get("dataloader_num_workers", 0):
            # Rows read ahead by worker processes would have been chosen before `update` saw the batch.
            raise ConfigError(
                "a custom sampler needs the rows to be read in this process",
                where="data.dataloader_num_workers",
                got=data_config.get("dataloader_num_workers", 0),
                expected=0,
            )
        made: Any = cls(data_source=dataset, data_config=data_config)
        return made
    if data_config.get("shuffle", True):
        return EpochSampler(dataset, seed=data_config.get("seed", None) or 0)
    return SequentialSampler(dataset)


def make_train_loader(
    dataset: SizedDataset,
    data_config: Any,
    *,
    batch_size: int | None = None,
    sampler: SizedSampler | None = None,
    collate: Callable[..., Any] | None = None,
) -> RowLoader:
    """Training batches; the last incomplete one is dropped.

    `batch_size` defaults to `data.gen_batch_size`, and where that is null to `data.train_batch_size`.
    """
    if batch_size is None:
        batch_size = data_config.get("gen_batch_size", None)
    if batch_size is None:
        batch_size = data_config.get("train_batch_size", None)
    _check_batch_size(batch_size, "data.gen_batch_size or data.train_batch_size")
    if len(dataset) < batch_size:
        raise ConfigError(
            "the training data set is smaller than one batch",
            where="data.train_files",
            got=f"{len(dataset)} rows",
            expected=f"at least data.train_batch_size={batch_size}",
        )
    return RowLoader(
        dataset,
        batch_size,
        sampler if sampler is not None else make_sampler(data_config, dataset),
        drop_last=True,
        num_workers=data_config.get("dataloader_num_workers", 0) or 0,
        collate_fn=collate or collate_fn,
    )


def make_val_loader(
    dataset: SizedDataset, data_config: Any, *, collate: Callable[..., Any] | None = None
) -> DataLoader[Any]:
    """Validation batches of `data.val_batch_size` rows (null: the whole set at once); nothing is dropped."""
    batch_size = data_config.get("val_batch_size", None)
    batch_size = len(dataset) if batch_size is None else batch_size
    _check_batch_size(batch_size, "data.val_batch_size")
    rows: Any = dataset
    return DataLoader(
        rows,
        batch_size=batch_size,
        shuffle=bool(data_config.get("validation_shuffle", False)),
        num_workers=data_config.get("dataloader_num_workers", 0) or 0,
        drop_last=False,
        collate_fn=collate or collate_fn,
    )


def _check_batch_size(batch_size: Any, key: str) -> None:
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ConfigError("a batch needs rows", where=key, got=batch_size, expected="a positive integer")
