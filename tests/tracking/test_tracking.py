# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from verl.errors import ConfigError
from verl.tracking import BACKENDS, Backend, RunInfo, Tracking, ValidationGenerationsLogger, read_metrics


@pytest.fixture(autouse=True)
def verl_records_reach_caplog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("verl"), "propagate", True)


@pytest.fixture
def register_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Register a backend class for one test."""
    items = dict(BACKENDS._items)
    yield lambda name, cls: BACKENDS._items.__setitem__(name, cls)
    BACKENDS._items.clear()
    BACKENDS._items.update(items)


class Memory(Backend):
    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self.rows: list[tuple[int, dict[str, Any]]] = []
        self.closed = 0
        Memory.last = self

    last: "Memory"

    def log(self, data: Mapping[str, Any], step: int) -> None:
        self.rows.append((step, dict(data)))

    def close(self) -> None:
        self.closed += 1


class FailsAtLog(Backend):
    calls = 0

    def log(self, data: Mapping[str, Any], step: int) -> None:
        FailsAtLog.calls += 1
        raise ConnectionError("tracker is down")


class FailsAtInit(Backend):
    def __init__(self, run: RunInfo) -> None:
        raise ConnectionError("no server")


def config(tmp_path: Path) -> dict[str, Any]:
    return {"trainer": {"default_local_dir": str(tmp_path)}}


def test_metrics_are_on_disk_when_log_returns(tmp_path: Path) -> None:
    tracking = Tracking("project", "run", [], config(tmp_path))
    tracking.log({"a": np.float32(1.5), "b": torch.tensor(2), "c": float("nan"), "d": np.bool_(True)}, step=1)
    (record,) = read_metrics(tmp_path / "metrics.jsonl")
    assert record["step"] == 1 and record["data"] == {"a": 1.5, "b": 2, "c": None, "d": True}
    tracking.close()


@pytest.mark.parametrize("form", ["dict", "DictConfig", "typed"])
def test_the_run_directory_is_found_in_any_form_of_configuration(tmp_path: Path, form: str) -> None:
    plain = {"root": str(tmp_path), "trainer": {"default_local_dir": "${root}/out"}}
    omega = OmegaConf.create(plain)
    resolved = OmegaConf.to_container(omega, resolve=True)
    typed = type("RunConfig", (), {"raw": resolved})()
    with Tracking("p", "e", [], {"dict": resolved, "DictConfig": omega, "typed": typed}[form]) as tracking:
        tracking.log({"x": 1}, 1)
    assert (tmp_path / "out" / "metrics.jsonl").exists()


def test_the_console_line_starts_with_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    with Tracking("p", "e", "console") as tracking:
        tracking.log({"critic/score/mean": np.float64(0.25), "text": "no number", "n": 3}, step=7)
    assert capsys.readouterr().out == "step:7 - critic/score/mean:0.25 - n:3\n"


def test_nothing_is_written_here_without_a_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Tracking("p", "e", "console") as tracking:
        tracking.log({"x": 1}, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [("VERL_FILE_LOGGER_PATH", "a/b.jsonl", "a/b.jsonl"), ("VERL_FILE_LOGGER_ROOT", "root", "root/p/e.jsonl")],
)
def test_the_file_logger_goes_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / value))
    with Tracking("p", "e", ["file"], config(tmp_path / "out")) as tracking:
        tracking.log({"x": 1}, 1)
    for path in (tmp_path / expected, tmp_path / "out" / "metrics.jsonl"):
        assert [record["data"] for record in read_metrics(path)] == [{"x": 1}]


def test_the_file_backend_in_a_run_writes_one_file_once(tmp_path: Path) -> None:
    with Tracking("p", "e", ["file", "jsonl"], config(tmp_path)) as tracking:
        tracking.log({"x": 1}, 1)
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_tensorboard_holds_every_step(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Tracking("p", "e", ["tensorboard"], config(tmp_path)) as tracking:
        tracking.log({"x": 1.0, "y": torch.tensor(float("nan"))}, 1)
        tracking.log({"x": np.int64(2), "text": "skipped"}, 2)
        assert not tracking.failures()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("x")] == [(1, 1.0), (2, 2.0)]
    assert sorted(events.Tags()["scalars"]) == ["x", "y"]


def test_a_backend_that_fails_at_log_is_said_once_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, register_backend: Any
) -> None:
    register_backend("flaky", FailsAtLog)
    FailsAtLog.calls = 0
    with Tracking("p", "e", ["flaky"], config(tmp_path)) as tracking:
        for step in range(10):
            tracking.log({"x": step}, step)
        assert tracking.failures() == {"flaky": 3}
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 10
    assert FailsAtLog.calls == 3
    assert [record.getMessage() for record in caplog.records] == [
        "tracking backend 'flaky' failed in log (ConnectionError: tracker is down); the run goes on",
        "tracking backend 'flaky' failed 3 times in a row and is off now",
    ]


def test_a_backend_that_fails_at_the_start_is_said_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, register_backend: Any
) -> None:
    register_backend("absent", FailsAtInit)
    with Tracking("p", "e", ["absent"], config(tmp_path)) as tracking:
        tracking.log({"x": 1}, 1)
        assert tracking.failures() == {"absent": 1}
    assert "no server" in caplog.text and len(read_metrics(tmp_path / "metrics.jsonl")) == 1


def test_a_tracker_that_is_not_installed_is_said_with_its_package(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "swanlab", None)
    with Tracking("p", "e", ["swanlab"], config(tmp_path)) as tracking:
        assert tracking.failures() == {"swanlab": 1}
    assert "trainer.logger=[swanlab] needs the package 'swanlab'" in caplog.text


def test_an_unknown_backend_is_refused_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.logger.*tensorbord"):
        Tracking("p", "e", ["tensorbord"])


def test_the_old_name_tracking_means_wandb(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, register_backend: Any
) -> None:
    register_backend("wandb", Memory)
    with Tracking("p", "e", ["tracking"]) as tracking:
        tracking.log({"x": 1}, 1)
    assert Memory.last.rows == [(1, {"x": 1})]
    assert "'tracking' is an old name of 'wandb'" in caplog.text


def test_closing_twice_is_harmless_and_happens_after_an_exception(tmp_path: Path, register_backend: Any) -> None:
    register_backend("memory", Memory)
    with pytest.raises(RuntimeError), Tracking("p", "e", ["memory"], config(tmp_path)) as tracking:
        tracking.log({"x": 1}, 1)
        raise RuntimeError("training failed")
    tracking.close()
    tracking.finish()
    tracking.log({"x": 2}, 2)
    assert Memory.last.closed == 1 and Memory.last.rows == [(1, {"x": 1})]


def test_the_last_record_survives_an_exit_without_close(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom verl.tracking import Tracking\n"
        "t = Tracking('p', 'e', ['tensorboard'], {'trainer': {'default_local_dir': sys.argv[1]}})\n"
        "t.log({'val': 1.0}, 5)\nraise SystemExit(3)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True).returncode == 3
    assert read_metrics(tmp_path / "metrics.jsonl")[-1]["step"] == 5
    assert any(path.stat().st_size > 100 for path in (tmp_path / "tensorboard").iterdir())


def test_metrics_can_go_to_one_backend_only(tmp_path: Path, register_backend: Any) -> None:
    register_backend("memory", Memory)
    with Tracking("p", "e", ["memory"], config(tmp_path)) as tracking:
        tracking.log({"x": 1}, 1, backend="memory")
    assert Memory.last.rows == [(1, {"x": 1})] and read_metrics(tmp_path / "metrics.jsonl") == []


def test_generations_reach_the_open_tracker_that_was_asked(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Tracking("p", "e", ["tensorboard"], config(tmp_path)):
        ValidationGenerationsLogger().log(["tensorboard", "console"], [["1+1=", "2", 1.0]], step=3)
        ValidationGenerationsLogger().log_generations_to_wandb(samples=[["nobody", "is", "there"]], step=3)
        ValidationGenerationsLogger().log_generations_to_tensorboard(samples=[["2+2=", "4", 1.0]], step=4)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    (tag,) = events.Tags()["tensors"]
    texts = [event.tensor_proto.string_val[0] for event in events.Tensors(tag)]
    assert len(texts) == 2 and b"1+1=" in texts[0] and b"2+2=" in texts[1]


def test_text_with_odd_line_separators_stays_one_record(tmp_path: Path) -> None:
    text = "a\u2028b\x85c\x1cd\ud800"
    with Tracking("p", "e", [], config(tmp_path)) as tracking:
        tracking.log({"text": text}, 1)
    (record,) = read_metrics(tmp_path / "metrics.jsonl")
    assert record["data"]["text"] == text
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["step"] == 1
