# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The stream of (uid, row): put-back groups first, then the loader, epoch after epoch.

A uid is "<epoch>-<row>-<place in the epoch>"; it names the same prompt in every life of the run.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any

from verl.errors import CheckpointError
from verl.utils.dataset.loader import fingerprint, make_train_loader


class PromptFeed:
    """Rows one at a time; reading a row (which may decode images) happens off the event loop.

    A row that was handed out and not yet claimed is part of the position, so that no snapshot can fall between.
    """

    def __init__(self, dataset: Any, data_config: Any, epochs: int) -> None:
        self.dataset = dataset
        self.epochs = epochs
        self.epoch = 0
        self._loader = make_train_loader(self.dataset, data_config, batch_size=1)
        self._rows: Iterator[dict[str, Any]] | None = None
        self._put_back: deque[tuple[str, dict[str, Any]]] = deque()
        self._unclaimed: str | None = None
        self._reading: asyncio.Lock | None = None

    @property
    def reading(self) -> asyncio.Lock:
        """Held while the loader moves; whoever wants a consistent position takes it first."""
        if self._reading is None:
            self._reading = asyncio.Lock()
        return self._reading

    async def next(self) -> tuple[str, dict[str, Any]] | None:
        """The next uid and row, or None when nothing is left (put-back groups may still come)."""
        async with self.reading:
            item = self._put_back.popleft() if self._put_back else await asyncio.to_thread(self._from_loader)
            self._unclaimed = item[0] if item else None
        return item

    def claim(self, uid: str) -> None:
        """The ledger holds `uid` now."""
        self._unclaimed = None

    def _from_loader(self) -> tuple[str, dict[str, Any]] | None:
        while self.epoch < self.epochs:
            if self._rows is None:
                self._rows = iter(self._loader)
            batch = next(self._rows, None)
            if batch is not None:
                return self._loader.uids[0], single_row(batch)
            self._rows = None
            self.epoch += 1
        return None

    @property
    def num_put_back(self) -> int:
        return len(self._put_back)

    @property
    def exhausted(self) -> bool:
        """Nothing will come unless a group is put back."""
        return self.epoch >= self.epochs and not self._put_back

    def put_back(self, rows: list[tuple[str, dict[str, Any]]]) -> None:
        """These come next."""
        self._put_back.extend(rows)

    def row(self, uid: str) -> dict[str, Any]:
        """The row that a uid names."""
        return self.dataset[int(uid.split("-")[1])]

    def position(self) -> dict[str, Any]:
        """Plain part of the state; take `reading` first."""
        waiting = [self._unclaimed] if self._unclaimed else []
        return {"epoch": self.epoch, "put_back": waiting + [uid for uid, _ in self._put_back]}

    def loader_state(self) -> dict[str, Any]:
        """State of the loader (verl's `data.pt`); take `reading` first."""
        return self._loader.state_dict()

    def restore(self, position: dict[str, Any], loader_state: dict[str, Any]) -> None:
        """Continue behind the last row that was given out.

        Uids name rows, so that other rows under the old names would be trained as what they are not: refused.
        """
        if loader_state.get("fingerprint") not in (None, fingerprint(self.dataset)):
            raise CheckpointError(
                "the training set holds other rows than when the checkpoint was written",
                where="data.train_files",
                got=f"{len(self.dataset)} rows",
                expected=f"the {loader_state['num_rows']} rows of then",
                remedy="resume with the same files, or set trainer.resume_mode=disable",
            )
        self.epoch = int(position["epoch"])
        self._loader.load_state_dict(loader_state)
        # A state taken at the end of an epoch goes on with the next one: uids must not repeat those of the last.
        self.epoch = max(self.epoch, self._loader.epoch)
        self.put_back([(uid, self.row(uid)) for uid in position["put_back"]])


def single_row(batch: dict[str, Any]) -> dict[str, Any]:
    """A collated batch of one as a plain row."""
    return {key: value[0] for key, value in batch.items()}
