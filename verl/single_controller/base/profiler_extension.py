# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Start and stop of a worker's profiler from the controller."""

from typing import Any

from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.profiler.dist_profiler import DistProfiler

__all__ = ["DistProfilerExtension"]


class DistProfilerExtension:
    """Beside `Worker` in a class's bases: gives its group `start_profile` and `stop_profile`."""

    def __init__(self, profiler: DistProfiler) -> None:
        self.profiler = profiler

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def start_profile(self, **kwargs: Any) -> None:
        """Begin on every rank; see `DistProfiler.start`."""
        self.profiler.start(**kwargs)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def stop_profile(self) -> None:
        """End on every rank, and write the traces."""
        self.profiler.stop()
