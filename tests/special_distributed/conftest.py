# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Shared parts of tests are plain modules in `tests/helpers/`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
