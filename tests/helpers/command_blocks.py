# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The command blocks of the start pages, and which of their commands cannot be run where there is no accelerator."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/start.md", "docs/config.md", "docs/hardware/cpu.md", "docs/hardware/rocm.md")
PAGES += ("docs/hardware/cuda.md", "docker/README.md", "CONTRIBUTING.md")
FENCE = re.compile(r"```bash\n(.*?)```", flags=re.DOTALL)
# Commands that tests/docs/test_commands_for_real.py leaves out, by how they begin, and why. Nothing else is left out;
# tests/docs/test_commands.py judges these too.
NOT_RUN_FOR_REAL = {
    "make test ": "runs these very tests; CI runs it in a fresh clone (.ci/run, .github/workflows/cpu.yml)",
    "python -m verl.experimental.fully_async_policy.fully_async_main actor_rollout_ref.model.path=": (
        "a model of seven billion parameters on eight devices"
    ),
    "docker build ": "needs a Docker engine; .github/workflows/cpu.yml and accelerator.yml build the images",
    "docker run ": "needs a Docker engine, and devices for two of the three images",
    "MODEL=/models/Qwen2.5-7B-Instruct ": "a model of seven billion parameters on eight AMD devices",
}


class Block(NamedTuple):
    """One block of commands."""

    page: str
    line: int
    """Where it begins."""
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Its commands, each on one line, without comments."""
        joined = re.sub(r" *\\\n *", " ", self.text)
        bare = [re.sub(r"(^| )#.*", "", line).strip() for line in joined.splitlines()]
        return [line for line in bare if line]

    def commands_to_run(self) -> list[str]:
        """Those that can be run here."""
        left_out = tuple(NOT_RUN_FOR_REAL)
        return [command for command in self.commands() if not f"{command} ".startswith(left_out)]


def _blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        found += [Block(page, text[: match.start()].count("\n") + 1, match[1]) for match in FENCE.finditer(text)]
    return found


BLOCKS = _blocks()
