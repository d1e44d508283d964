# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
