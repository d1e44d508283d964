# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Watch it work: a tiny model learns sums by fully asynchronous GRPO on this machine.

python -m verl.quickstart [--run DIR] [key=value …]
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from verl.config.front_door import verl_home
from verl.errors import VerlError
from verl.platform.facts import refuse_broken_torch
from verl.quickstart.cache import prepare
from verl.quickstart.run import command_line, existing_run_dir, new_run_dir, run
from verl.quickstart.summary import print_summary, summarize
from verl.utils.logging_utils import set_up_logging


def parse(arguments: Sequence[str] | None) -> tuple[Path | None, list[str]]:
    """The run to resume, if any, and the overrides."""
    parser = argparse.ArgumentParser(
        prog="python -m verl.quickstart",
        description="Fully asynchronous GRPO on a tiny model and sums of two-digit numbers, to a report.",
        usage="%(prog)s [--run DIR] [key=value ...]",
        epilog="Overrides are those of fully_async_main: trainer.seed=1 async_training.staleness_threshold=0 ...",
    )
    parser.add_argument("--run", type=Path, metavar="DIR", help="resume the quick start that wrote DIR")
    options, overrides = parser.parse_known_args(arguments)
    return options.run, overrides


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare, run, report; returns the exit code of the run."""
    set_up_logging("quickstart")
    resumed, overrides = parse(arguments)
    home, console = verl_home(), Console()
    try:
        refuse_broken_torch()
        run_dir = existing_run_dir(resumed) if resumed else new_run_dir(home)
        prepared = prepare(home)
        start_s = time.monotonic()
        code = run(command_line(prepared, run_dir, overrides))
        if code != 0:
            console.print(f"The run ended with exit code {code}. Its logs: {run_dir / 'logs'}", soft_wrap=True)
            if (run_dir / "latest_checkpointed_iteration.txt").exists():
                # A wheel has no Makefile.
                console.print(f"Resume it: {sys.executable} -m verl.quickstart --run {run_dir}", soft_wrap=True)
            return code
        print_summary(console, summarize(run_dir, prepared, time.monotonic() - start_s))
    except VerlError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
