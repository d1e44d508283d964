# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every production formula against the reference in tests/golden."""

import importlib

import pytest
from checks import CHECKS


@pytest.mark.parametrize(
    ("module", "check"), [(module, check) for module, checks in CHECKS.items() for check in checks], ids=str
)
def test_production_equals_the_papers_formula(module, check):
    check(importlib.import_module(module))
