# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of reinforcement learning: pure functions on tensors, torch and NumPy only."""
