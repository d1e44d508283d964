# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Shared parts of tests are plain modules in `tests/helpers/`."""

import ray.cloudpickle
import scripted_client

# Ray workers get the class itself: they do not have this directory on their path.
ray.cloudpickle.register_pickle_by_value(scripted_client)
