# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One logger set-up: level from `VERL_LOGGING_LEVEL`, each line names the process's role."""

import logging
import os


def set_up_logging(role: str) -> None:
    """Send this process's `verl` records to stderr with `role` in each line; call once per process."""
    logger = logging.getLogger("verl")
    logger.setLevel(os.environ.get("VERL_LOGGING_LEVEL", "INFO").upper())
    logger.propagate = False
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname).1s {role} %(name)s: %(message)s", "%H:%M:%S"))
    logger.handlers[:] = [handler]
