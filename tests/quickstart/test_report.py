# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import math
import re
from pathlib import Path

import pytest

from verl.quickstart.report import Outcome, write_report
from verl.quickstart.timeline import in_flight, lanes, union
from verl.tracking import Tracking
from verl.utils.trace import record_span, set_up_trace, stop_trace


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The records of a short run: ten versions, generation and training side by side."""
    with Tracking("p", "e", [], {"trainer": {"default_local_dir": str(tmp_path)}}) as tracking:
        for version in range(1, 11):
            tracking.log(
                {
                    "critic/score/mean": 0.4 + 0.02 * version,
                    "fully_async/staleness/token_age_mean": 0.5,
                    "timing_s/gen": 0.2,
                    "timing_s/update_actor": 0.5,
                    "bad": math.nan,
                },
                version,
            )
        tracking.log({"val-core/sums/acc/mean@1": 0.6}, 10)
    for role, name in (("rollouter", "generate_group"), ("agent-loop-0", "generate_group"), ("trainer", "train")):
        set_up_trace(tmp_path / "trace", role)
        for index in range(5):
            record_span(name, 100.0 + index, 101.5 + index)
    stop_trace()
    return tmp_path


OUTCOME = Outcome(
    "A <run>",
    facts=[("updates", "10")],
    table=[("held-out sums, sampled", "0.40", "0.60")],
    paths=[("metrics", "/x/metrics.jsonl")],
    points={"held-out, greedy": [(0, 0.8), (10, 0.95)]},
)


def test_the_page_stands_alone_and_shows_every_part(run_dir: Path) -> None:
    text = write_report(run_dir, OUTCOME).read_text()
    outside = text.replace("http://www.w3.org", "")
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", outside), "the page loads something from elsewhere"
    for words in ("A &lt;run&gt;", "Learning", "Staleness", "Seconds of a step", "Who worked when", "/x/metrics.jsonl"):
        assert words in text
    assert text.count("Plotly.newPlot(") == 4
    assert [path.name for path in run_dir.glob("report*")] == ["report.html"]


def test_a_run_that_died_early_still_gets_a_page(tmp_path: Path) -> None:
    text = write_report(tmp_path, Outcome("nothing")).read_text()
    assert "nothing" in text and "Plotly.newPlot(" not in text


def test_overlapping_work_of_one_kind_becomes_one_bar() -> None:
    assert union([(3, 4), (0, 1), (0.5, 2), (2, 2.5)]) == [(0, 2.5), (3, 4)]
    spans = [
        {"name": "generate_group", "role": "rollouter", "start_s": 0.0, "end_s": 2.0},
        {"name": "generate_group", "role": "agent-loop-0", "start_s": 1.0, "end_s": 3.0},
        {"name": "something else", "role": "x", "start_s": 0.0, "end_s": 9.0},
    ]
    (lane,) = lanes(spans)
    assert (lane.name, lane.intervals) == ("generation", [(0.0, 3.0)])


def test_a_group_seen_by_two_processes_is_in_flight_once() -> None:
    spans = [
        {"name": "generate_group", "role": role, "start_s": start, "end_s": start + 2}
        for start in (0, 1)
        for role in ("rollouter", "agent-loop-0", "agent-loop-1")
    ]
    times, counts = in_flight([span for span in spans if span["role"] != "agent-loop-1"])
    assert (times, counts) == ([0, 1, 2, 3], [1, 2, 1, 0])
