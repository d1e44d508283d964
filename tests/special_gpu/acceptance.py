# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Runs a training command, kills it on the way, starts it again, and judges what it left.

python acceptance.py --out DIR --updates N [--kill-at N] [--reference F] [--record F] [--results F] -- COMMAND …

COMMAND writes DIR/metrics.jsonl and resumes from DIR by itself. Exit code 0: everything held; 1: each fault on a line.
Needs no accelerator itself.
"""

import argparse
import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from verl.platform import current_platform

Record = dict[str, Any]
WINDOWS = 5
# Metric → (absolute, relative) distance that the mean of a fifth of the run may have from the stored run's.
CURVES = {
    "critic/score/mean": (0.05, 0.0),
    "actor/entropy": (0.05, 0.2),
    "actor/rollout_corr/kl": (0.01, 0.0),
    "response_length/mean": (0.0, 0.2),
}
FINITE = ("actor/pg_loss", "actor/grad_norm", "critic/score/mean")
MAX_KL_TO_ROLLOUT = 0.1
RESULTS = ("perf/throughput", "perf/time_per_step", "weight_sync/transfer_s", "weight_sync/paused_s")
GONE_S = 180.0


class Failed(Exception):
    """A sentence about the run that did not hold."""


def records(out: Path) -> list[Record]:
    """The training records of `out`/metrics.jsonl; a line that is still being written does not count."""
    path = out / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    return [record for record in whole if "actor/pg_loss" in record["data"]]


def start(command: Sequence[str], out: Path) -> "subprocess.Popen[bytes]":
    """The command in a session of its own, told where to write."""
    return subprocess.Popen(command, env={**os.environ, "OUT": str(out)}, start_new_session=True)


def run_until_killed(command: Sequence[str], out: Path, kill_at: int) -> None:
    """Start, wait for version `kill_at`, kill -9, and see everything that it started go away by itself."""
    process = start(command, out)
    while not any(record["step"] >= kill_at for record in records(out)):
        if process.poll() is not None:
            raise Failed(f"the command ended with {process.returncode} before version {kill_at}")
        time.sleep(1)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=GONE_S)
    if alive:
        names = ", ".join(f"{child.pid} {child.name()}" for child in alive if child.is_running())
        raise Failed(f"{GONE_S:.0f} s after the kill these are still there: {names}")


def faults(found: list[Record], updates: int) -> list[str]:
    """What is wrong with a finished run by its own records."""
    steps = [record["step"] for record in found]
    wrong = []
    if steps != list(range(1, len(steps) + 1)):
        twice = sorted({step for step in steps if steps.count(step) > 1})
        missing = sorted(set(range(1, max(steps, default=0) + 1)) - set(steps))
        wrong.append(f"versions are not 1, 2, 3 …: twice {twice}, missing {missing}")
    if len(steps) < updates:
        wrong.append(f"{len(steps)} weight updates, expected at least {updates}")
    for record in found:
        data, where = record["data"], f"version {record['step']}"
        for name in FINITE:
            if name in data and not math.isfinite(data[name]):
                wrong.append(f"{where}: {name} is {data[name]}")
        if data.get("weight_sync/attempts", 1) != 1:
            wrong.append(f"{where}: the weight update took {data['weight_sync/attempts']:.0f} attempts")
        if abs(data.get("actor/rollout_corr/kl", 0.0)) > MAX_KL_TO_ROLLOUT:
            wrong.append(f"{where}: the servers have other weights, KL {data['actor/rollout_corr/kl']:.3f}")
    return wrong


def curves(found: list[Record]) -> dict[str, list[float]]:
    """Per metric of `CURVES` that the run has: its mean over each fifth of the run."""
    told = {}
    for name in CURVES:
        values = [record["data"][name] for record in found if name in record["data"]]
        if len(values) >= WINDOWS:
            bounds = [round(index * len(values) / WINDOWS) for index in range(WINDOWS + 1)]
            told[name] = [statistics.fmean(values[a:b]) for a, b in itertools.pairwise(bounds)]
    return told


def differences(mine: dict[str, list[float]], stored: dict[str, list[float]]) -> list[str]:
    """Where these curves leave the band around the stored run's."""
    wrong = []
    for name, expected in stored.items():
        absolute, relative = CURVES[name]
        for window, value in enumerate(expected):
            allowed = absolute + relative * abs(value)
            got = mine[name][window] if name in mine else math.nan
            if not abs(got - value) <= allowed:
                wrong.append(f"{name}, fifth {window + 1}: {got:.4f}, stored run {value:.4f} ± {allowed:.4f}")
    return wrong


def result(found: list[Record]) -> dict[str, Any]:
    """One line for the history of a benchmark: medians, and what they were measured on."""
    platform = current_platform()
    medians = {}
    for name in RESULTS:
        values = [record["data"][name] for record in found if name in record["data"]]
        if values:
            medians[name] = statistics.median(values)
    versions = {}
    for name in ("verl", "torch", "vllm", "ray"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "time_s": time.time(),
        "commit": os.environ.get("GITHUB_SHA"),
        "device": platform.device_name() if platform.is_available() else None,
        "versions": versions,
        "updates": len(found),
        "medians": medians,
        "curves": curves(found),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, kill, resume, judge; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--updates", type=int, required=True, help="weight updates that the run must have")
    parser.add_argument("--kill-at", type=int, help="kill -9 once this version is trained, then start again")
    parser.add_argument("--reference", type=Path, help="curves of a stored run")
    parser.add_argument("--record", type=Path, help="store the curves of this run")
    parser.add_argument("--results", type=Path, help="append one line of JSON")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    if options.reference and not options.reference.exists():
        sys.stderr.write(f"{options.reference} does not exist: make it by a run with --record that you trust\n")
        return 2
    if records(options.out):
        sys.stderr.write(f"{options.out} holds a run already: give an empty directory\n")
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        if options.kill_at:
            run_until_killed(options.command, options.out, options.kill_at)
        code = start(options.command, options.out).wait()
        if code != 0:
            raise Failed(f"the command ended with {code}")
    except Failed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    found = records(options.out)
    wrong = faults(found, options.updates)
    if options.reference:
        wrong += differences(curves(found), json.loads(options.reference.read_text()))
    for line in wrong:
        sys.stderr.write(line + "\n")
    if options.record and not wrong:
        options.record.write_text(json.dumps(curves(found), indent=2) + "\n")
    if options.results:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        with options.results.open("a") as history:
            history.write(json.dumps(result(found) | {"faults": len(wrong)}) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
