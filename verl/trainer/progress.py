# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One line that says how the run stands: live on a terminal, a plain line every few seconds elsewhere."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

PLAIN_INTERVAL_S = 5.0
REFRESH_PER_SECOND = 4


class ProgressLine:
    """A view over a status mapping; it keeps nothing but the last mapping it was shown.

    Keys, all optional: phase (text, before the first step), step, total_steps, policy_version, reward (mean of the
    last batch), accuracy (last validation), staleness (mean age of the last batch's tokens, in versions),
    tokens_per_s, eta_s, waiting_for (text). Unknown keys are ignored.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        interval_s: float = PLAIN_INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = Console(file=stream or sys.stderr, highlight=False)
        self._interval_s = interval_s
        self._clock = clock
        self._start_s = clock()
        self._status: dict[str, Any] = {}
        self._next_line_s = 0.0
        self._last_line = ""
        self._live: Live | None = None

    def __enter__(self) -> "ProgressLine":
        self._start_s = self._clock()
        if self._console.is_terminal:
            self._spinner = Spinner("dots", style="cyan")
            # `get_renderable` is asked at each refresh, so that the clock runs while nothing else happens.
            self._live = Live(
                console=self._console,
                get_renderable=self._render,
                refresh_per_second=REFRESH_PER_SECOND,
                transient=True,
                redirect_stdout=True,
                redirect_stderr=True,
            )
            self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.__exit__(*exception)
        elif self._status:
            self._write_line()

    def update(self, status: Mapping[str, Any]) -> None:
        """Show `status`; cheap enough for every poll."""
        self._status = dict(status)
        if self._live is None and self._clock() >= self._next_line_s:
            self._write_line()

    def _write_line(self) -> None:
        text = describe(self._status)
        self._next_line_s = self._clock() + self._interval_s
        if text and text != self._last_line:
            # Not `Console.print`: a log line is never wrapped at a width.
            self._console.file.write(f"[{clock_text(self._clock() - self._start_s)}] {text}\n")
            self._console.file.flush()
        self._last_line = text

    def _render(self) -> Table:
        row = Table.grid(padding=(0, 1))
        step, total = self._status.get("step") or 0, self._status.get("total_steps")
        cells: list[Any] = [self._spinner, clock_text(self._clock() - self._start_s)]
        if total:
            cells.append(ProgressBar(total=total, completed=step, width=20))
        row.add_row(*cells, _styled(self._status))
        return row


def describe(status: Mapping[str, Any]) -> str:
    """`step 12/240 · version 11 · reward 0.44 · staleness 0.50 · 8.1k tok/s · waiting for …` with what is known."""
    return " · ".join(text for text, _ in _parts(status))


def clock_text(seconds: float) -> str:
    """`1:05`, `1:02:03`."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _styled(status: Mapping[str, Any]) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    for part, style in _parts(status):
        text.append(" · " if text else "", style="dim").append(part, style=style)
    return text


def _parts(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    parts = []
    step, total = status.get("step"), status.get("total_steps")
    if step is not None:
        parts.append((f"step {step}/{total}" if total else f"step {step}", "bold"))
    elif status.get("phase"):
        parts.append((str(status["phase"]), "bold"))
    for key, template, style in _FIELDS:
        if (value := status.get(key)) is not None:
            parts.append((template(value), style))
    return parts


def _rate(value: float) -> str:
    return f"{value / 1000:.1f}k tok/s" if value >= 1000 else f"{value:.0f} tok/s"


_FIELDS: tuple[tuple[str, Callable[[Any], str], str], ...] = (
    ("policy_version", lambda value: f"version {value}", ""),
    ("reward", lambda value: f"reward {value:.2f}", "green"),
    ("accuracy", lambda value: f"accuracy {value:.2f}", "green"),
    ("staleness", lambda value: f"staleness {value:.2f}", ""),
    ("tokens_per_s", _rate, ""),
    ("eta_s", lambda value: f"{clock_text(value)} left", ""),
    ("waiting_for", lambda value: f"waiting for {value}", "yellow"),
)
