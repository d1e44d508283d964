# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`python -m verl.doctor [overrides]`: this machine, the resolved configuration with origins, what stands in the way.

Exit code 0: nothing; 1: something; 2: the configuration cannot be read.
"""

import sys
from collections.abc import Sequence

from rich.console import Console

from verl.config.compose import compose_config, parse_command_line
from verl.config.front_door import FULLY_ASYNC, report, settle
from verl.config.run import build_config
from verl.doctor.findings import Finding
from verl.doctor.machine import examine
from verl.doctor.origin import Leaf, leaves
from verl.doctor.preflight import preflight
from verl.errors import VerlError


def main(argv: Sequence[str]) -> int:
    """Print three parts; without overrides only the machine."""
    console = Console(highlight=False)
    machine = examine()
    _print_findings(console, "Machine", machine)
    if not argv:
        return int(any(finding.problem for finding in machine))
    try:
        line = parse_command_line(argv, FULLY_ASYNC, "fully_async_ppo_trainer")
        composed = compose_config(line)
        config = build_config(settle(composed, line), unknown="keep")
    except VerlError as error:
        return report(error, 2)
    _print_tree(
        console, [leaf for leaf in leaves(config, composed, line) if leaf.origin == "CLI" or not leaf.is_default]
    )
    checked = preflight(config)
    _print_findings(console, "Preflight", checked)
    return int(any(finding.problem for finding in (*machine, *checked)))


def _print_findings(console: Console, title: str, findings: Sequence[Finding]) -> None:
    console.rule(title, align="left")
    for finding in findings:
        console.print(finding.line(), style="bold red" if finding.problem else None, soft_wrap=True, markup=False)


def _print_tree(console: Console, shown: Sequence[Leaf]) -> None:
    console.rule("Configuration (keys at their default are left out; all of them: --cfg job)", align="left")
    for leaf in shown:
        console.print(f"  {leaf.origin:8}{leaf.path} = {leaf.value!r}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
