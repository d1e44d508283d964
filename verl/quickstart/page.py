# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The HTML around the plots: title, facts, tables; one file that needs nothing else."""

import html
from collections.abc import Sequence

import plotly.graph_objects as go


def page(
    title: str,
    *,
    facts: Sequence[tuple[str, str]],
    table: Sequence[tuple[str, str, str]],
    paths: Sequence[tuple[str, str]],
    figures: Sequence[tuple[str, str, go.Figure]],
) -> str:
    """The page; each figure is (heading, sentence, figure)."""
    sections = []
    for index, (heading, words, figure) in enumerate(figures):
        plot = figure.to_html(
            full_html=False,
            # The library goes into the page once: about 4 MB, and no network.
            include_plotlyjs="inline" if index == 0 else False,
            config={"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["lasso2d", "select2d"]},
        )
        sections.append(f"<section><h2>{html.escape(heading)}</h2><p>{html.escape(words)}</p>{plot}</section>")
    cards = (f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>" for name, value in facts)
    return _TEMPLATE.format(
        title=html.escape(title),
        facts="".join(cards),
        table=_table(("", "start", "end"), table),
        sections="\n".join(sections),
        paths=_table(("file", "path"), paths),
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{''.join(f'<th>{html.escape(cell)}</th>' for cell in head)}</tr></thead>{lines}</table>"


_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1f2430; background: #f6f7f9; margin: 0 }}
main {{ max-width: 1080px; margin: 0 auto; padding: 28px 20px 60px }}
h1 {{ font-size: 26px; margin: 0 0 16px }} h2 {{ font-size: 18px; margin: 0 0 4px }}
p {{ color: #6b7280; margin: 0 0 10px }}
.facts {{ display: flex; flex-wrap: wrap; gap: 12px; margin-bottom: 18px }}
.facts div {{ background: #fff; border: 1px solid #e5e7eb; border-radius: 10px; padding: 10px 16px; min-width: 96px }}
.facts b {{ display: block; font-size: 20px }} .facts span {{ color: #6b7280; font-size: 13px }}
section, .card {{ background: #fff; border: 1px solid #e5e7eb; border-radius: 10px; padding: 18px;
  margin-bottom: 18px }}
.card:empty {{ display: none }}
table {{ border-collapse: collapse; font-size: 14px }} th {{ color: #6b7280; font-weight: 500 }}
td, th {{ text-align: left; padding: 4px 28px 4px 0; border-bottom: 1px solid #eef0f3; word-break: break-word }}
</style></head><body><main>
<h1>{title}</h1>
<div class="facts">{facts}</div>
<div class="card">{table}</div>
{sections}
<div class="card">{paths}</div>
</main></body></html>
"""
