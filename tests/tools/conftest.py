# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A sandbox on this machine."""

from collections.abc import Iterator

import pytest
from local_sandbox import LocalSandbox


@pytest.fixture
def sandbox() -> Iterator[LocalSandbox]:
    """A running sandbox, fresh for each test."""
    server = LocalSandbox()
    yield server
    server.close()
