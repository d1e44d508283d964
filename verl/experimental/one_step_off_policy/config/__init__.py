# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""YAML configurations, read by Hydra as a package."""
