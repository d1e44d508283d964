# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Only the name that device_ipc imports."""
