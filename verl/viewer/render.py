# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One trajectory for the terminal or for a page."""

import html
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from verl.viewer.load import Record

# Shown at fixed places; everything else goes into the last line.
_PLACED = ("input", "output", "gts", "score", "step", "uid")


def title(record: Record) -> str:
    """`step 12 · uid 0-7 · score 1`."""
    parts = [f"{name} {record[name]}" for name in ("step", "uid") if record.get(name) is not None]
    score = record.get("score")
    return " · ".join([*parts, f"score {score:g}" if isinstance(score, int | float) else "no score"])


def extras(record: Record) -> str:
    """What the reward function and the rollout added, as `name=value`."""
    return "  ".join(f"{name}={value}" for name, value in record.items() if name not in _PLACED and value is not None)


def panel(record: Record) -> RenderableType:
    """A panel with prompt, answer and expected answer; what a model wrote is never read as markup."""
    lines: list[RenderableType] = [
        Text(str(record.get("input", "")), style="dim"),
        Text(str(record.get("output", ""))),
        Text(f"expected: {record.get('gts')}", style="cyan"),
    ]
    if extras(record):
        lines.append(Text(extras(record), style="dim"))
    good = isinstance(record.get("score"), int | float) and record["score"] > 0
    return Panel(Group(*lines), title=Text(title(record)), title_align="left", border_style="green" if good else "red")


def page(records: Iterable[Record]) -> str:
    """One HTML page that needs nothing else."""
    cards = "\n".join(
        f'<article class="{"good" if (record.get("score") or 0) > 0 else "bad"}"><h2>{html.escape(title(record))}</h2>'
        f'<pre class="input">{html.escape(str(record.get("input", "")))}</pre>'
        f"<pre>{html.escape(str(record.get('output', '')))}</pre>"
        f"<p>expected: {html.escape(str(record.get('gts')))}</p><p>{html.escape(extras(record))}</p></article>"
        for record in records
    )
    return _PAGE.replace("{cards}", cards)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Rollouts</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 24px auto; color: #1f2430 }
article { border-left: 4px solid #dc2626; background: #f6f7f9; padding: 8px 16px; margin-bottom: 14px }
article.good { border-color: #16a34a } h2 { font-size: 15px; margin: 0 } pre { white-space: pre-wrap; margin: 6px 0 }
.input, p { color: #6b7280 } p { margin: 2px 0 }
</style></head><body>
{cards}
</body></html>
"""
