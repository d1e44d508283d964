# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sphinx with MyST: Markdown that GitHub also renders, cross references that Sphinx checks, warnings as errors."""

project = "verl"
author = "The verl maintainers"
copyright = "2026, The verl maintainers"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "verl"
