# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Start against end: measured on the saved checkpoints, shown as a table and a page."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from verl.quickstart.cache import Prepared
from verl.quickstart.report import Outcome, series, write_report
from verl.quickstart.run import final_model
from verl.tracking.files import METRICS_FILE, read_metrics
from verl.trainer.progress import clock_text

logger = logging.getLogger(__name__)

# What the task of the quick start is expected to show.
EXPECTED_GAIN, EXPECTED_GREEDY = 0.15, 0.9
EVALUATION_DEADLINE_S = 300.0


@dataclass(frozen=True)
class Summary:
    """Accuracies on the held-out sums at start and end (end None without a final model), and where things are."""

    start: Mapping[str, float]
    end: Mapping[str, float] | None
    steps: int
    seconds: float
    paths: Sequence[tuple[str, str]]

    @property
    def as_expected(self) -> bool:
        """Whether the run learned what the quick start is there to show."""
        if self.end is None:
            return False
        return self.end["sampled"] - self.start["sampled"] >= EXPECTED_GAIN and self.end["greedy"] >= EXPECTED_GREEDY


def summarize(run_dir: Path, prepared: Prepared, seconds: float) -> Summary:
    """Measure the final model, write the report, and collect both."""
    model = final_model(run_dir)
    end = _evaluate(model) if model is not None else None
    records = read_metrics(run_dir / METRICS_FILE)
    steps = int(max((record["step"] for record in records), default=0))
    places = [
        ("metrics", run_dir / METRICS_FILE),
        ("TensorBoard", run_dir / "tensorboard"),
        ("rollouts", run_dir / "rollouts"),
        ("checkpoint", model.parents[1] if model else run_dir),
        ("logs", run_dir / "logs"),
    ]
    paths = [(name, str(path)) for name, path in places if path.exists()]
    summary = Summary(prepared.facts, end, steps, seconds, paths)
    report = write_report(run_dir, _outcome(summary, records))
    return Summary(prepared.facts, end, steps, seconds, [*paths, ("report", str(report))])


def print_summary(console: Console, summary: Summary) -> None:
    """The table of start against end, and the paths, one a line so that they can be copied."""
    table = Table(title=f"{summary.steps} policy versions in {clock_text(summary.seconds)}", title_justify="left")
    table.add_column("1 000 held-out sums")
    for name in ("start", "end"):
        table.add_column(name, justify="right")
    for row in _rows(summary):
        table.add_row(*row)
    console.print(table)
    if not summary.as_expected:
        wanted = f"sampled +{EXPECTED_GAIN}, greedy {EXPECTED_GREEDY}"
        console.print(f"[yellow]Less than the quick start is there to show ({wanted}).[/]")
    for name, path in summary.paths:
        console.print(f"{name:>12}  {path}", soft_wrap=True, highlight=False)


def _rows(summary: Summary) -> list[tuple[str, str, str]]:
    return [
        (f"{kind} accuracy", _share(summary.start[kind]), _share(summary.end[kind]) if summary.end else "–")
        for kind in ("sampled", "greedy")
    ]


def _outcome(summary: Summary, records: Sequence[Mapping[str, Any]]) -> Outcome:
    tokens = sum(series(records, "perf/total_num_tokens")[1])
    facts = [("policy versions", str(summary.steps)), ("wall clock", clock_text(summary.seconds))]
    facts += [("tokens trained on", f"{tokens:,.0f}".replace(",", " "))] if tokens else []
    points = {}
    if summary.end is not None:
        points["held-out, greedy"] = [(0, summary.start["greedy"]), (summary.steps, summary.end["greedy"])]
    return Outcome("Quick start: sums of two-digit numbers", facts, _rows(summary), summary.paths, points)


def _share(value: float) -> str:
    return f"{value:.3f}"


def _evaluate(model: Path) -> dict[str, float] | None:
    # A process of its own: this one has stayed free of torch for the whole run.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "verl.quickstart.evaluate", str(model)]
    try:
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=EVALUATION_DEADLINE_S)
    except subprocess.TimeoutExpired:
        logger.error("the final model %s was not evaluated within %.0f s", model, EVALUATION_DEADLINE_S)
        return None
    if result.returncode != 0:
        logger.error("the final model %s could not be evaluated:\n%s", model, result.stderr[-2000:])
        return None
    return json.loads(result.stdout.splitlines()[-1])
