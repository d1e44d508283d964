# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Read rollouts: python -m verl.viewer RUN [--step N] [--uid U] [--max-score X] [--text T] [--html FILE]."""

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from verl.errors import VerlError
from verl.viewer.load import Filter, load
from verl.viewer.render import page, panel


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the records that pass; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m verl.viewer", description="Read rollout dumps.")
    parser.add_argument("path", type=Path, help="a run, a folder of <step>.jsonl, or one such file")
    parser.add_argument("--step", type=int)
    parser.add_argument("--uid")
    parser.add_argument("--min-score", type=float)
    parser.add_argument("--max-score", type=float)
    parser.add_argument("--text", help="only records whose prompt or answer has this text")
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--html", type=Path, help="write a page instead of showing")
    options = parser.parse_args(arguments)
    wanted = Filter(options.step, options.uid, options.max_score, options.min_score, options.text)
    try:
        records = list(itertools.islice(load(options.path, wanted), options.limit))
    except VerlError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    if options.html:
        options.html.write_text(page(records), encoding="utf-8")
        return 0
    console = Console()
    for record in records:
        console.print(panel(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
