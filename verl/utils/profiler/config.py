# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old path of the profiler's configuration, which lives in `verl.config.profiler`."""

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
