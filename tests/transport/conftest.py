# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A process that makes peer processes, and a private directory for their sockets."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def peers() -> Iterator[Callable[..., int]]:
    """Start a peer (see peers.py); returns its pid."""
    script = Path(__file__).with_name("peers.py")
    process = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(**job: Any) -> int:
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    yield start
    process.stdin.close()
    process.wait(timeout=20)


@pytest.fixture
def handle() -> Iterator[str]:
    """An address in a private directory of its own, which must hold nothing at the end."""
    directory = Path(tempfile.mkdtemp(prefix="vt-"))
    yield f"ipc://{directory}/w.sock"
    left = [path.name for path in directory.iterdir()]
    shutil.rmtree(directory)
    assert not left, "sockets are left behind"
