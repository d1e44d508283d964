# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A script on several ranks of one machine, one process a rank."""

import os
import socket
import subprocess
import sys
from pathlib import Path

DEADLINE_S = 240


def run_on_ranks(script: Path, *arguments: object, out: Path, count: int = 2) -> None:
    """Run `script arguments… out` on `count` ranks to its end; a rank that fails shows the end of every log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(count):
        env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        with (out / f"log-{rank}.txt").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, str(script), *map(str, arguments), str(out)],
                    env={**os.environ, **{key: str(value) for key, value in env.items()}},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
    try:
        codes = [process.wait(timeout=DEADLINE_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    logs = "\n".join((out / f"log-{rank}.txt").read_text()[-3000:] for rank in range(count))
    assert codes == [0] * count, logs
