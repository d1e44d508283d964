#!/usr/bin/env bash
# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# The tests that need an accelerator, in an image; where there is none each says why it was skipped.
#   test.sh [pytest arguments]
set -euo pipefail
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1
# The image's user cannot write to the image's packages, and an image for training has no pytest.
"$python" -c "import pytest, pytest_timeout" 2>/dev/null ||
    "$python" -m pip install -q --user "pytest>=8" "pytest-timeout>=2.3"
cd "$(dirname "$0")/../.."
exec "$python" -m pytest -rs tests/special_gpu "$@"
