# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Read rollouts: what the model wrote, beside what was expected of it."""
