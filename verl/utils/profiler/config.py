# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Typed profiler configurations under the path that `_target_` names."""

from verl.config.profiler import (
    NPUToolConfig,
    NsightToolConfig,
    PrecisionDebuggerToolConfig,
    ProfilerConfig,
    TorchMemoryToolConfig,
    TorchProfilerToolConfig,
)

__all__ = [
    "NPUToolConfig",
    "NsightToolConfig",
    "PrecisionDebuggerToolConfig",
    "ProfilerConfig",
    "TorchMemoryToolConfig",
    "TorchProfilerToolConfig",
]
