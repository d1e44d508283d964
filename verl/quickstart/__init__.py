# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The main job on an embedded default: a tiny model, sums of two-digit numbers, the full asynchronous system."""
