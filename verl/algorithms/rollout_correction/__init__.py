# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Correction for data that another policy (or another engine's arithmetic) has made."""
