# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Front door of the one-step-off trainer, which this release leaves out; it says what to run instead."""

import sys

from verl.config.front_door import report
from verl.errors import UnsupportedError


def main() -> None:
    """Refuse, naming the settings of the fully asynchronous trainer that do the same."""
    error = UnsupportedError(
        "the one-step-off trainer is not part of this release",
        remedy="run `python -m verl.experimental.fully_async_policy.fully_async_main` with "
        "async_training.trigger_parameter_sync_step=1 and async_training.staleness_threshold=1: "
        "the next batch is generated while this one is trained",
    )
    sys.exit(report(error, 2))


if __name__ == "__main__":
    main()
