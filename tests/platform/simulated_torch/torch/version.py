# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What torch/version.py of a ROCm build looks like."""

__version__ = "2.11.0+rocm7.2"
debug = False
cuda = None
hip = "7.2.53150"
