# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The stream of prompts: every row once an epoch under a uid of its own, in one life or in several."""

import asyncio
import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from verl.errors import CheckpointError
from verl.experimental.fully_async_policy.prompt_feed import PromptFeed

# A sampler with replacement, as a curriculum may have.
SAMPLER = """
from verl.experimental.dataset.sampler import AbstractSampler


class LastTwice(AbstractSampler):
    def __init__(self, data_source, data_config):
        self.last = len(data_source) - 1

    def __iter__(self):
        return iter([self.last, self.last])

    def __len__(self):
        return 2
"""


def feed(rows: int = 4, epochs: int = 2) -> PromptFeed:
    data = OmegaConf.create({"shuffle": True, "seed": 1, "dataloader_num_workers": 0})
    return PromptFeed([{"x": row} for row in range(rows)], data, epochs=epochs)


def uids(source: PromptFeed, count: int | None = None) -> list[str]:
    async def scenario() -> list[str]:
        found: list[str] = []
        while (count is None or len(found) < count) and (item := await source.next()) is not None:
            assert item[1]["x"] == int(item[0].split("-")[1])
            source.claim(item[0])
            found.append(item[0])
        return found

    return asyncio.run(scenario())


def test_each_row_comes_once_an_epoch() -> None:
    found = uids(feed())
    # "<epoch>-<row>-<place>"
    for epoch in (0, 1):
        epochs, rows, places = zip(*(map(int, uid.split("-")) for uid in found[4 * epoch : 4 * epoch + 4]), strict=True)
        assert (epochs, sorted(rows), places) == ((epoch,) * 4, [0, 1, 2, 3], (0, 1, 2, 3))
    assert feed(epochs=0).exhausted


def test_a_row_that_a_sampler_gives_twice_is_two_prompts(tmp_path: Path) -> None:
    (tmp_path / "sampler.py").write_text(SAMPLER)
    sampler = {"class_path": str(tmp_path / "sampler.py"), "class_name": "LastTwice"}
    data = OmegaConf.create({"sampler": sampler, "dataloader_num_workers": 0})
    assert uids(PromptFeed([{"x": 0}, {"x": 1}], data, epochs=1)) == ["0-1-0", "0-1-1"]


def test_a_resumed_feed_goes_on_where_the_first_one_stopped_also_at_the_end_of_an_epoch() -> None:
    whole = uids(feed())
    for stop in range(1, 9):
        first, second = feed(), feed()
        assert uids(first, stop) == whole[:stop]
        second.restore(json.loads(json.dumps(first.position())), first.loader_state())
        assert uids(second) == whole[stop:], f"stopped after {stop} of {len(whole)}"
        assert second.exhausted


def test_a_row_that_was_handed_out_and_not_claimed_comes_again() -> None:
    async def handed_out(source: PromptFeed) -> str:
        uid, _ = await source.next()
        return uid

    first, second = feed(), feed()
    uid = asyncio.run(handed_out(first))
    second.restore(first.position(), first.loader_state())
    assert uids(second, 1) == [uid]


def test_put_back_rows_come_first() -> None:
    source = feed()
    (first, *_) = uids(source, 2)
    source.put_back([(first, source.row(first))])
    assert source.num_put_back == 1
    assert uids(source, 1) == [first]


class Rows(list):
    """Rows that show themselves, as a data set of files does."""

    @property
    def dataframe(self) -> list[dict[str, int]]:
        return list(self)


def test_other_rows_under_the_old_uids_are_refused() -> None:
    data = OmegaConf.create({"shuffle": True, "seed": 1, "dataloader_num_workers": 0})
    first = PromptFeed(Rows({"x": row} for row in range(4)), data, epochs=2)
    uids(first, 3)
    for others in (range(3), range(4, 8)):
        changed = PromptFeed(Rows({"x": row} for row in others), data, epochs=2)
        with pytest.raises(CheckpointError, match=rf"other rows.*got '{len(others)} rows'.*the 4 rows of then"):
            changed.restore(first.position(), first.loader_state())
