# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Timers, named ranges, and profilers behind one switch."""

from verl.utils.profiler.annotations import mark_annotate, mark_end_range, mark_range, mark_start_range
from verl.utils.profiler.performance import marked_timer, simple_timer

__all__ = ["mark_annotate", "mark_end_range", "mark_range", "mark_start_range", "marked_timer", "simple_timer"]
