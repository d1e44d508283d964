# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the machine can do: one `Platform` per process, chosen once, explained, and light to ask for."""

import functools

from verl.platform.base import Platform
from verl.platform.detect import detect

__all__ = ["Platform", "current_platform"]


@functools.cache
def current_platform() -> Platform:
    """The platform of this process; `VERL_PLATFORM` overrides the detection."""
    return detect()
