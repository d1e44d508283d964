# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`report.html` of a run: what was learned, how stale the data was, and who worked when. Opens without a network."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from verl.quickstart.page import page
from verl.quickstart.timeline import LANES, Lane, in_flight, lanes
from verl.tracking.files import METRICS_FILE, read_metrics
from verl.utils.trace import read_trace

INK, MUTED, GRID = "#1f2430", "#6b7280", "#e5e7eb"
BLUE, GREEN, ORANGE, RED, PURPLE, GREY = "#2563eb", "#16a34a", "#ea8a1a", "#dc2626", "#7c3aed", "#9ca3af"
# What a person can take in at once: about ten steps of the quick start.
TIMELINE_WINDOW_S = 10.0
LANE_COLORS = {
    "generation": BLUE,
    "reward": GREEN,
    "training": ORANGE,
    "waiting for data": GREY,
    "weight update": RED,
    "validation": PURPLE,
    "checkpoint": "#0d9488",
}


@dataclass(frozen=True)
class Outcome:
    """What the page says in words: a title, facts as (name, value), and the table of start against end."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    table: Sequence[tuple[str, str, str]] = ()
    paths: Sequence[tuple[str, str]] = ()
    points: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Further points of the accuracy plot by name, each (policy version, accuracy)."""


def write_report(run_dir: str | Path, outcome: Outcome) -> Path:
    """Write `<run_dir>/report.html` from its metrics and trace; a part without data is left out."""
    run_dir = Path(run_dir)
    records = read_metrics(run_dir / METRICS_FILE)
    spans = read_trace(run_dir / "trace")
    figures = [
        ("Learning", _WORDS["learning"], learning_figure(records, outcome.points)),
        ("Staleness", _WORDS["staleness"], staleness_figure(records)),
        ("Seconds of a step", _WORDS["seconds"], seconds_figure(records)),
        ("Who worked when", _WORDS["timeline"], timeline_figure(spans)),
    ]
    path = run_dir / "report.html"
    draft = path.with_suffix(".part")
    text = page(
        outcome.title,
        facts=outcome.facts,
        table=outcome.table,
        paths=outcome.paths,
        figures=[item for item in figures if item[2] is not None],
    )
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
    return path


_WORDS = {
    "learning": "Reward is the share of right answers among the trajectories of each training batch. "
    "Accuracy is measured on 1 000 sums that are never trained on.",
    "staleness": "Age of a trained token in policy versions: 0 means it was written by the very weights it updates.",
    "seconds": "Where a training step spends its time, by policy version.",
    "timeline": "Generation goes on while training runs; only applying new weights pauses it. "
    "A few seconds from the middle of the run: double-click to see all of it, drag to zoom.",
}


def series(records: Iterable[Mapping[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """Steps and values of one metric, where it is a number."""
    pairs = [
        (record["step"], record["data"][name])
        for record in records
        if isinstance(record["data"].get(name), int | float)
    ]
    return [step for step, _ in pairs], [value for _, value in pairs]


def names_with(records: Sequence[Mapping[str, Any]], prefix: str, suffix: str = "") -> list[str]:
    """Metric names of all records that start and end so, in order of appearance."""
    found: dict[str, None] = {}
    for record in records:
        found |= {name: None for name in record["data"] if name.startswith(prefix) and name.endswith(suffix)}
    return list(found)


def learning_figure(
    records: Sequence[Mapping[str, Any]], points: Mapping[str, Sequence[tuple[float, float]]]
) -> go.Figure | None:
    """Reward of the training batches, accuracy of the validations, and the points given."""
    figure = go.Figure()
    steps, rewards = series(records, "critic/score/mean")
    if steps:
        figure.add_scatter(
            x=steps, y=rewards, name="reward, each batch", mode="lines", line=_line(GREY, 1), opacity=0.7
        )
        figure.add_scatter(
            x=steps, y=_smooth(rewards), name="reward, moving average", mode="lines", line=_line(BLUE, 2.5)
        )
    for name in names_with(records, "val-core/", "mean@1") or names_with(records, "val-core/")[:1]:
        steps, values = series(records, name)
        figure.add_scatter(x=steps, y=values, name="held-out, sampled", mode="lines+markers", line=_line(GREEN, 2.5))
    for index, (name, pairs) in enumerate(points.items()):
        style = {"size": 11, "symbol": "diamond", "color": (ORANGE, PURPLE)[index % 2]}
        figure.add_scatter(
            x=[x for x, _ in pairs], y=[y for _, y in pairs], name=name, mode="markers+lines", marker=style,
            line={"dash": "dot", "color": style["color"]},
        )  # fmt: skip
    return _finish(figure, "policy version", "share of right answers", y_range=(0, 1.02)) if figure.data else None


def staleness_figure(records: Sequence[Mapping[str, Any]]) -> go.Figure | None:
    """Token age, and groups from older versions."""
    figure = go.Figure()
    for name, label, color in (
        ("fully_async/staleness/token_age_mean", "mean age of a token", BLUE),
        ("fully_async/staleness/token_age_max", "oldest token", RED),
        ("fully_async/partial/partial_ratio", "share of trajectories over several versions", PURPLE),
    ):
        steps, values = series(records, name)
        if steps:
            figure.add_scatter(x=steps, y=values, name=label, mode="lines", line=_line(color, 2))
    return _finish(figure, "policy version", "versions", height=280) if figure.data else None


def seconds_figure(records: Sequence[Mapping[str, Any]]) -> go.Figure | None:
    """Stacked seconds of the parts of a step."""
    parts = {
        "timing_s/gen": ("waiting for data", GREY),
        "timing_s/old_log_prob": ("old log-probs", PURPLE),
        "timing_s/ref": ("reference", GREEN),
        "timing_s/update_critic": ("critic update", "#0d9488"),
        "timing_s/update_actor": ("actor update", ORANGE),
        "timing_s/param_sync": ("weight update", RED),
    }
    figure = go.Figure()
    for name, (label, color) in parts.items():
        steps, values = series(records, name)
        steps, values = (steps, values) if steps else series(records, f"timing_s/{name}")
        if steps:
            figure.add_scatter(x=steps, y=values, name=label, mode="lines", stackgroup="s", line=_line(color, 0.5))
    return _finish(figure, "policy version", "seconds", height=280) if figure.data else None


def timeline_figure(spans: Sequence[Mapping[str, Any]]) -> go.Figure | None:
    """A lane of bars for each kind of work, and how many groups are in flight."""
    if not spans:
        return None
    start_s = min(span["start_s"] for span in spans)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.68, 0.32], vertical_spacing=0.06)
    for lane in lanes(spans):
        figure.add_trace(_bars(lane, start_s), row=1, col=1)
    times, counts = in_flight(spans)
    figure.add_scatter(
        x=[time_s - start_s for time_s in times],
        y=counts,
        mode="lines",
        line={"shape": "hv", "color": BLUE, "width": 1},
        fill="tozeroy",
        fillcolor="rgba(37,99,235,.12)",
        name="groups in flight",
        hovertemplate="%{y} groups<extra></extra>",
        row=2,
        col=1,
    )
    figure.update_yaxes(categoryorder="array", categoryarray=[name for name, _ in reversed(LANES)], row=1, col=1)
    _finish(figure, "", "", height=420)
    figure.update_yaxes(title_text="groups in flight", row=2, col=1, rangemode="tozero")
    figure.update_xaxes(title_text="seconds since the first span", row=2, col=1)
    figure.update_xaxes(range=_middle(spans, start_s))
    figure.update_layout(barmode="overlay", bargap=0.35, showlegend=False, hovermode="closest", dragmode="zoom")
    return figure


def _bars(lane: Lane, start_s: float) -> go.Bar:
    return go.Bar(
        y=[lane.name] * len(lane.intervals),
        base=[begin - start_s for begin, _ in lane.intervals],
        x=[end - begin for begin, end in lane.intervals],
        customdata=[end - begin for begin, end in lane.intervals],
        orientation="h",
        marker={"color": LANE_COLORS[lane.name], "line": {"width": 0}},
        name=lane.name,
        hovertemplate=f"{lane.name}<br>at %{{base:.2f}} s, %{{customdata:.3f}} s long<extra></extra>",
    )


def _middle(spans: Sequence[Mapping[str, Any]], start_s: float) -> tuple[float, float] | None:
    """A window around the middle of training; None (everything) for a run that is not much longer."""
    trained = [span["start_s"] - start_s for span in spans if span["name"] == "train"]
    if not trained or trained[-1] - trained[0] < 2 * TIMELINE_WINDOW_S:
        return None
    middle_s = (trained[0] + trained[-1]) / 2
    return middle_s - TIMELINE_WINDOW_S / 2, middle_s + TIMELINE_WINDOW_S / 2


def _finish(
    figure: go.Figure, x: str, y: str, *, height: int = 360, y_range: tuple[float, float] | None = None
) -> go.Figure:
    figure.update_layout(
        template="simple_white",
        height=height,
        margin={"l": 64, "r": 16, "t": 8, "b": 44},
        font={"family": "system-ui, sans-serif", "size": 13, "color": INK},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="x unified",
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    figure.update_xaxes(title_text=x, showgrid=True, gridcolor=GRID, zeroline=False)
    figure.update_yaxes(title_text=y, showgrid=True, gridcolor=GRID, zeroline=False, range=y_range)
    return figure


def _line(color: str, width: float) -> dict[str, Any]:
    return {"color": color, "width": width}


def _smooth(values: Sequence[float], window: int = 9) -> list[float]:
    half = window // 2
    parts = (values[max(0, i - half) : i + half + 1] for i in range(len(values)))
    return [sum(part) / len(part) for part in parts]
