# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a quick start makes once: under a lock, by rename, and removed when nobody uses it."""

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

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


def hold_until_told(home: Path, ready: Any, done: Any) -> None:
    cache._run_warm_start = fake_warm_start
    age(prepare(home).model)
    ready.set()
    done.wait(60)


def age(base: Path) -> None:
    """As if it had last been used longer ago than is allowed."""
    long_ago = time.time() - cache.UNUSED_S - 60
    os.utime(base, (long_ago, long_ago))


def test_a_base_that_nobody_has_used_for_a_week_goes_when_another_recipe_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_run_warm_start", fake_warm_start)
    old, recent = tmp_path / "quickstart" / "base-11111111", tmp_path / "quickstart" / "base-22222222"
    half_made = tmp_path / "quickstart" / "base-11111111.x7f3"
    for base in (old, recent, half_made):
        base.mkdir(parents=True)
        (base / FACTS_FILE).write_text("{}")
    old.with_name("base-11111111.lock").touch()
    age(old)
    age(half_made)
    model = prepare(tmp_path).model
    assert sorted(path.name for path in (tmp_path / "quickstart").glob("base-*") if path.is_dir()) == sorted(
        [recent.name, model.name]
    )
    assert not old.with_name("base-11111111.lock").exists()
    # Being asked for is being used.
    age(model)
    prepare(tmp_path)
    assert time.time() - model.stat().st_mtime < 3600


def test_a_base_that_a_run_uses_stays_however_old_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    child = context.Process(target=hold_until_told, args=(tmp_path, ready, done))
    child.start()
    assert ready.wait(60)
    used = tmp_path / "quickstart" / f"base-{cache.recipe_digest()}"
    monkeypatch.setattr(cache, "_run_warm_start", fake_warm_start)
    monkeypatch.setattr(cache, "recipe_digest", lambda: "00000000")
    prepare(tmp_path)
    assert (used / FACTS_FILE).exists()
    done.set()
    child.join(60)
    prepare(tmp_path)
    assert not used.exists()


def test_a_base_that_goes_as_it_is_asked_for_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_run_warm_start", fake_warm_start)
    real, calls = cache._hold, []

    def hold(directory: Path) -> int | None:
        calls.append(directory)
        if len(calls) == 1:
            # The moment between finding the base and holding it.
            age(directory)
            cache._remove_unused(directory)
        return real(directory)

    monkeypatch.setattr(cache, "_hold", hold)
    assert (prepare(tmp_path).model / FACTS_FILE).exists()
    assert len(calls) == 2 and (tmp_path / "quickstart" / "builds").read_text() == "xx"
