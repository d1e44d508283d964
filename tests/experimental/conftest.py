# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the tests of this folder are plain modules in `helpers/`."""

import sys
from pathlib import Path

import ray.cloudpickle

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

import scripted_client  # noqa: E402

# Ray workers get the class itself: they do not have this directory on their path.
ray.cloudpickle.register_pickle_by_value(scripted_client)
