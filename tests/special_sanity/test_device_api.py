# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`torch.cuda.` is spoken in the platform room only; vLLM's and Triton's rooms may, others ask current_platform()."""

import ast
from pathlib import Path

import verl

ROOT = Path(verl.__file__).parent
MAY = ("platform/", "workers/rollout/vllm_rollout/", "utils/kernel/", "algorithms/kernels/")
DEVICES = ("torch.cuda", "torch.npu", "torch_npu")


def spoken(source: str) -> list[int]:
    """Lines that name a device module of torch in code (texts and comments do not count)."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        name = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        if any(entry in DEVICES or entry.startswith(("torch.cuda.", "torch.npu.")) for entry in (name, *names)):
            lines.append(node.lineno)
    return sorted(set(lines))


def test_other_rooms_ask_the_platform() -> None:
    offenders = []
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT).as_posix()
        if not relative.startswith(MAY):
            offenders += [f"{path}:{line}" for line in spoken(path.read_text(encoding="utf-8"))]
    assert offenders == []


def test_each_way_of_speaking_is_heard() -> None:
    source = "import torch\ntorch.cuda.synchronize()\nfrom torch import cuda\nimport torch.cuda.amp\nx = 'torch.cuda'\n"
    assert spoken(source) == [2, 3, 4]
