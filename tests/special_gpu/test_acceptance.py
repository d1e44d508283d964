# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The judge of the hardware runs, tested where there is no hardware: it kills, resumes, and finds each fault."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verl.config import validate
from verl.config.compose import parse_command_line
from verl.config.front_door import FULLY_ASYNC, load

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("acceptance", HERE / "acceptance.py")
acceptance = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(acceptance)

# A run that resumes from what it wrote; a child outlives it unless it is the good kind.
TRAINER = """
import json, os, subprocess, sys, time
out = os.environ["OUT"]
path = os.path.join(out, "metrics.jsonl")
done = sum(1 for _ in open(path)) if os.path.exists(path) else 0
watch = "import os, sys, time\\nwhile os.getppid() == int(sys.argv[1]): time.sleep(0.05)"
subprocess.Popen([sys.executable, "-c", watch, str(os.getpid())])
for step in range(done + 1, int(sys.argv[1]) + 1):
    data = {"actor/pg_loss": 0.1, "actor/grad_norm": 1.0, "critic/score/mean": step / 100, "perf/throughput": 5.0}
    with open(path, "a") as file:
        file.write(json.dumps({"step": step, "data": data}) + "\\n")
    with open(os.path.join(out, "lives"), "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(0.02)
    if step == 5 and done == 0:
        time.sleep(60)
"""


def judge(out: Path, *options: str, steps: int = 12, code: str = TRAINER) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "acceptance.py"), "--out", str(out), "--updates", "12", *options]
    command += ["--", sys.executable, "-c", code, str(steps)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_run_is_killed_resumed_and_accepted_and_its_curves_are_kept(tmp_path: Path) -> None:
    stored, history = tmp_path / "stored.json", tmp_path / "history" / "lines.jsonl"
    options = ("--kill-at", "5", "--record", str(stored), "--results", str(history))
    done = judge(tmp_path / "out", *options)
    assert done.returncode == 0, done.stderr
    lives = (tmp_path / "out" / "lives").read_text().split()
    assert len(set(lives)) == 2 and len(lives) == 12, "two lives, each version once"
    assert json.loads(stored.read_text())["critic/score/mean"][0] == pytest.approx(0.015)
    line = json.loads(history.read_text())
    assert (line["updates"], line["faults"], line["medians"]) == (12, 0, {"perf/throughput": 5.0})

    again = judge(tmp_path / "again", "--kill-at", "5", "--reference", str(stored))
    assert again.returncode == 0, again.stderr
    stored.write_text(json.dumps({"critic/score/mean": [0.5] * 5}))
    refused = judge(tmp_path / "third", "--kill-at", "5", "--reference", str(stored))
    assert refused.returncode == 1
    assert "critic/score/mean, fifth 1: 0.0150, stored run 0.5000 ± 0.0500" in refused.stderr


def test_a_run_that_is_too_short_or_ends_badly_is_refused(tmp_path: Path) -> None:
    short = judge(tmp_path / "short", "--kill-at", "5", steps=8)
    assert short.returncode == 1 and "8 weight updates, expected at least 12" in short.stderr
    early = judge(tmp_path / "early", "--kill-at", "5", code="raise SystemExit(3)")
    assert early.returncode == 1 and "ended with 3 before version 5" in early.stderr
    failed = judge(tmp_path / "failed", code="raise SystemExit(4)")
    assert failed.returncode == 1 and "the command ended with 4" in failed.stderr


def test_what_would_spoil_the_verdict_is_refused_before_the_run(tmp_path: Path) -> None:
    missing = judge(tmp_path / "out", "--reference", str(tmp_path / "none.json"))
    assert missing.returncode == 2 and "make it by a run with --record" in missing.stderr
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "metrics.jsonl").write_text('{"step": 1, "data": {"actor/pg_loss": 0}}\n')
    assert "holds a run already" in judge(tmp_path / "used").stderr


def run_of(*steps: int, **data: float) -> list[dict[str, Any]]:
    return [{"step": step, "data": {"actor/pg_loss": 0.0, **data}} for step in steps]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (run_of(1, 2, 2, 3), r"twice \[2\], missing \[\]"),
        (run_of(1, 3), r"twice \[\], missing \[2\]"),
        (run_of(1, 2, **{"actor/grad_norm": float("nan")}), "version 1: actor/grad_norm is nan"),
        (run_of(1, 2, **{"weight_sync/attempts": 2}), "took 2 attempts"),
        (run_of(1, 2, **{"actor/rollout_corr/kl": -0.4}), "the servers have other weights, KL -0.400"),
    ],
)
def test_each_fault_of_a_record_is_a_sentence(found: list[dict[str, Any]], sentence: str) -> None:
    assert acceptance.faults(run_of(1, 2), 2) == []
    assert any(re.search(sentence, line) for line in acceptance.faults(found, 2))


# Real runs of the quick start on CPU, 120 weight updates each: two seeds, and one with two thirds of the learning rate
# from an earlier base model. Only what is judged was kept.
REAL = HERE / "curves"
WROTE = "import os, shutil, sys; shutil.copy(sys.argv[1], os.path.join(os.environ['OUT'], 'metrics.jsonl'))"


def judge_real(run: str, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "acceptance.py"), "--out", str(out), "--updates", "120", *options]
    command += ["--", sys.executable, "-c", WROTE, str(REAL / f"{run}.jsonl")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_real_run_is_stored_one_like_it_is_accepted_and_one_that_learns_less_is_refused(tmp_path: Path) -> None:
    stored = tmp_path / "stored.json"
    assert judge_real("seed_0", tmp_path / "first", "--record", str(stored)).returncode == 0
    assert {name: len(values) for name, values in json.loads(stored.read_text()).items()} == {
        "critic/score/mean": 5,
        "actor/rollout_corr/kl": 5,
        "response_length/mean": 5,
    }
    alike = judge_real("seed_1", tmp_path / "second", "--reference", str(stored))
    assert (alike.returncode, alike.stderr) == (0, "")
    worse = judge_real("lower_learning_rate", tmp_path / "third", "--reference", str(stored))
    assert worse.returncode == 1
    assert re.search(r"critic/score/mean, fifth 5: 0\.8245, stored run 0\.9513 ± 0\.0500", worse.stderr), worse.stderr


@pytest.mark.parametrize(
    ("name", "shift", "wrong"),
    [
        ("critic/score/mean", 0.049, 0),
        ("critic/score/mean", -0.051, 5),
        ("actor/rollout_corr/kl", 0.0099, 0),
        ("actor/rollout_corr/kl", 0.0101, 5),
        ("response_length/mean", 0.79, 0),
        ("response_length/mean", -0.81, 5),
    ],
)
def test_the_bands_around_a_real_run_are_as_wide_as_stated(name: str, shift: float, wrong: int) -> None:
    found = [json.loads(line) for line in (REAL / "seed_0.jsonl").read_text().splitlines()]
    stored = acceptance.curves(found)
    for record in found:
        record["data"][name] += shift
    assert len(acceptance.differences(acceptance.curves(found), stored)) == wrong


def test_the_guide_states_the_bands() -> None:
    page = (HERE.parents[1] / "docs" / "hardware" / "rocm.md").read_text()
    for name, (absolute, relative) in acceptance.CURVES.items():
        band = " + ".join([f"{absolute:g}"] * bool(absolute) + [f"{100 * relative:.0f} %"] * bool(relative))
        assert f"| `{name}` | {band} |" in page, name


def test_a_curve_that_is_missing_is_a_difference() -> None:
    assert acceptance.differences({}, {"critic/score/mean": [0.1] * 5})


def command_of(script: str, tmp_path: Path, *arguments: str, **environ: str) -> list[str]:
    """What the script would start, told by a Python that starts nothing."""
    teller = tmp_path / "python"
    teller.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    teller.chmod(0o755)
    paths = {"MODEL": "/m", "TRAIN": "/t", "TEST": "/v", "OUT": str(tmp_path / "out"), "PYTHON": str(teller)}
    done = subprocess.run(
        ["bash", str(HERE / script), *arguments],
        env={**os.environ, **paths, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["fully_async_1", "fully_async_8", "lora_8", "colocated_8"])
def test_every_kind_of_run_composes_and_validates(kind: str, tmp_path: Path) -> None:
    told = command_of("run.sh", tmp_path, kind, "trainer.seed=3")
    assert told[told.index("--updates") + 1] == "60" and told[told.index("--kill-at") + 1] == "20"
    module, *keys = told[told.index("--") + 3 :]
    places = {
        "verl.trainer.main_ppo": ("verl.trainer.config", "ppo_trainer"),
        "verl.experimental.fully_async_policy.fully_async_main": (FULLY_ASYNC, "fully_async_ppo_trainer"),
    }
    config, _ = load(keys, *places[module])
    validate(config)
    assert config.trainer.seed == 3
    if config.async_training is not None:
        actor = config.actor_rollout_ref.actor
        per_version = actor.ppo_mini_batch_size * config.async_training.trigger_parameter_sync_step
        assert config.rollout.total_rollout_steps // per_version == 60
    devices = config.trainer.num_devices + (config.rollout.num_devices if config.rollout else 0)
    assert devices == (2 if kind == "fully_async_1" else 8)


def test_the_acceptance_run_is_140_steps_and_at_least_60_updates_on_4_and_4_devices(tmp_path: Path) -> None:
    script = (HERE / "mi300x_acceptance.sh").read_text()
    assert "NOT RUN ON HARDWARE" in script
    told = command_of("mi300x_acceptance.sh", tmp_path, RECORD=str(tmp_path / "curves.json"))
    assert told[told.index("--updates") + 1] == "60"
    launch = subprocess.run(
        told[told.index("--") + 1 :],
        env={**os.environ, "MODEL": "/m", "TRAIN": "/t", "TEST": "/v", "OUT": "/o", "PYTHON": str(tmp_path / "python")},
        capture_output=True,
        text=True,
        check=True,
    )
    keys = json.loads(launch.stdout)[2:]
    config, _ = load(keys, config_name=parse_command_line(keys, FULLY_ASYNC, "fully_async_ppo_trainer").config_name)
    validate(config)
    rounds = config.rollout.total_rollout_steps // config.actor_rollout_ref.actor.ppo_mini_batch_size
    assert rounds == 140 and rounds // config.async_training.trigger_parameter_sync_step >= 60
    assert (config.trainer.num_devices, config.rollout.num_devices) == (4, 4)
    assert config.actor_rollout_ref.actor.strategy == "fsdp2" and config.reward.reward_manager.name == "dapo"
