# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""For tools and people that call it; everything is in pyproject.toml."""

from setuptools import setup

setup()
