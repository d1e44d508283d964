#!/usr/bin/env bash
# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# Does this image hold together? The package imports, its configuration composes from /, and no package is there that
# breaks the others. Needs no device; used as the images' health check, at the end of their build, and in CI.
set -euo pipefail
cd /
python=${PYTHON:-python3}
"$python" - <<'PY'
import importlib.metadata as metadata
import sys

import verl

if "torch" in sys.modules:
    sys.exit("check.sh: `import verl` loads torch")
try:
    torch = metadata.version("torch")
except metadata.PackageNotFoundError:
    sys.exit("check.sh: torch is not installed")
names = {(item.metadata["Name"] or "").lower() for item in metadata.distributions()}
beside = sorted(names & {"torchvision", "torchaudio", "torchcodec"})
if torch.endswith("+cpu") and beside:
    sys.exit(f"check.sh: {', '.join(beside)} beside torch +cpu; run `pip uninstall -y {' '.join(beside)}`")
print(f"verl {verl.__version__}, torch {torch}")
PY
"$python" -m verl.experimental.fully_async_policy.fully_async_main --cfg job >/dev/null
printf 'check.sh: the configuration composes\n'
