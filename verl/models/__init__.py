# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is special about a model: loading, heads, attention, adapters."""
