# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A sandbox on this machine."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_FILE = Path(__file__).parents[1] / "experimental" / "helpers" / "local_sandbox.py"


@pytest.fixture
def sandbox() -> Iterator[Any]:
    """A running `LocalSandbox`, fresh for each test."""
    spec = importlib.util.spec_from_file_location("local_sandbox", _FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.LocalSandbox()
    yield server
    server.close()
