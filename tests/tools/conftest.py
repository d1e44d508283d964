# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A sandbox on this machine."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from local_sandbox import LocalSandbox


@pytest.fixture
def sandbox() -> Iterator[LocalSandbox]:
    """A running sandbox, fresh for each test."""
    server = LocalSandbox()
    yield server
    server.close()
