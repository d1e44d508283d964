# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""torch.profiler on the ranks that a configuration names."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from verl.config import ProfilerConfig
from verl.errors import ConfigError, UnsupportedError
from verl.single_controller.base.decorator import MAGIC_ATTR
from verl.utils.profiler import DistProfiler, DistProfilerExtension


def names(file: Path) -> set[str]:
    return {event.get("name") for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]}


class Model(DistProfilerExtension):
    """A worker with two annotated methods."""

    @DistProfiler.annotate(color="red", role="actor_update")
    def update(self, size: int) -> float:
        return torch.ones(size, size).matmul(torch.ones(size, size)).sum().item()

    @DistProfiler.annotate(message="my range")
    def other(self) -> int:
        return 3


def config(folder: Path, **parts: Any) -> dict[str, Any]:
    return {"enable": True, "tool": "torch", "ranks": [0], "save_path": str(folder), **parts}


def test_the_trace_from_start_to_stop_shows_the_annotated_ranges(tmp_path: Path) -> None:
    model = Model(DistProfiler(rank=0, config=config(tmp_path)))
    model.start_profile(role="e2e", profile_step="4")
    assert model.update(4) == 64.0
    assert model.other() == 3
    model.stop_profile()
    (file,) = tmp_path.iterdir()
    assert file.name == "e2e_4_rank0.json.gz"
    assert {"actor_update", "my range", "aten::matmul"} <= names(file)


def test_in_discrete_mode_each_annotated_call_has_its_trace(tmp_path: Path) -> None:
    model = Model(DistProfiler(0, config(tmp_path), {"discrete": True, "contents": ["cpu"]}))
    model.update(4)
    model.start_profile()
    model.update(4)
    model.other()
    model.stop_profile()
    model.update(4)
    found = sorted(file.name for file in tmp_path.iterdir())
    assert found == ["trace_actor_update_1_rank0.json.gz", "trace_my range_2_rank0.json.gz"]
    assert "my range" not in names(tmp_path / found[0])


@pytest.mark.parametrize(
    ("rank", "settings"),
    [
        (0, None),
        (0, {"enable": False, "tool": "torch", "all_ranks": True}),
        (1, {"enable": True, "tool": "torch", "ranks": [0]}),
    ],
)
def test_a_rank_that_is_not_asked_for_writes_nothing(
    rank: int, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Model(DistProfiler(rank, settings))
    model.start_profile()
    assert not model.profiler.check_this_step()
    model.update(2)
    model.stop_profile()
    assert list(tmp_path.iterdir()) == []


def test_all_ranks_means_every_rank(tmp_path: Path) -> None:
    assert DistProfiler(5, config(tmp_path, all_ranks=True, ranks=[])).check_this_rank()


def test_a_tool_that_starts_around_the_job_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="run the command under"):
        DistProfiler(0, config(tmp_path, tool="nsys"))


def test_the_group_may_call_start_and_stop() -> None:
    assert hasattr(DistProfilerExtension.start_profile, MAGIC_ATTR)
    assert hasattr(DistProfilerExtension.stop_profile, MAGIC_ATTR)


def test_a_typed_configuration_without_profiling_is_taken() -> None:
    assert not DistProfiler(0, ProfilerConfig()).check_enable()


def test_two_configurations_join_and_meet() -> None:
    one, two = ProfilerConfig(tool="torch", ranks=[0, 1]), ProfilerConfig(tool="torch", ranks=[1, 2])
    everyone = ProfilerConfig(tool="torch", all_ranks=True)
    assert one.union(two).ranks == [0, 1, 2] and one.union(everyone).all_ranks
    assert one.intersect(two).ranks == [1]
    assert one.intersect(everyone).ranks == [0, 1] and not one.intersect(everyone).all_ranks
    with pytest.raises(ConfigError, match="two profilers"):
        one.union(ProfilerConfig(tool="nsys"))
