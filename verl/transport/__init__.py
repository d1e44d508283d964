# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Moves named tensors between processes; knows bytes, shapes and deadlines, and nothing of models."""
