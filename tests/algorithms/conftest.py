# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The reference formulas of tests/golden can be imported by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))
