# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import multiprocessing
import time
from pathlib import Path

import pytest

from verl.quickstart import cache
from verl.quickstart.cache import FACTS_FILE, prepare


def fake_warm_start(directory: Path) -> None:
    time.sleep(0.5)
    (directory / FACTS_FILE).write_text('{"greedy": 0.5, "sampled": 0.4}')
    with (directory.parent / "builds").open("a") as stream:
        stream.write("x")


def prepare_in_child(home: Path) -> None:
    cache._run_warm_start = fake_warm_start
    prepare(home)


def test_two_quick_starts_at_once_make_the_base_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=prepare_in_child, args=(tmp_path,)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert (tmp_path / "quickstart" / "builds").read_text() == "x"
    prepared = prepare(tmp_path)
    assert prepared.facts == {"greedy": 0.5, "sampled": 0.4}
    assert prepared.train.exists() and prepared.held_out.exists()


def test_a_warm_start_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").write_text("")
        raise RuntimeError("out of luck")

    monkeypatch.setattr(cache, "_run_warm_start", fail)
    with pytest.raises(RuntimeError):
        prepare(tmp_path)
    assert [path.name for path in (tmp_path / "quickstart").iterdir() if path.is_dir()] == []


def test_a_changed_recipe_makes_a_new_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_run_warm_start", fake_warm_start)
    first = prepare(tmp_path)
    monkeypatch.setattr(cache, "recipe_digest", lambda: "00000000")
    assert prepare(tmp_path).model != first.model
    assert first.model.exists()
