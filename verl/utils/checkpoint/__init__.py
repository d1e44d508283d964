# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of training engines: names, retention, sharded state, Hugging Face export."""
