# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What can be known about the machine without loading torch."""

import ast
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from verl.errors import UnsupportedError

BUILT_FOR_CUDA = ("torchvision", "torchaudio", "torchcodec")
"""On the common indexes these are built against a CUDA torch, and their operators fail to register beside another."""
DEVICE_NODES = {"nvidia": "nvidia[0-9]*", "npu": "davinci[0-9]*"}


@dataclass(frozen=True)
class MachineFacts:
    """The torch build, and the device nodes; masks do not change these."""

    torch_version: str | None = None
    """null: torch is not installed."""
    cuda: str | None = None
    """CUDA version that torch was built for."""
    hip: str | None = None
    """HIP version that torch was built for."""
    torch_npu: bool = False
    """torch_npu is installed."""
    nvidia_devices: int = 0
    """Device nodes of NVIDIA GPUs."""
    amd_devices: int = 0
    """GPUs that the kernel's compute driver lists."""
    npu_devices: int = 0
    """Device nodes of Ascend NPUs."""


def read_facts(root: Path = Path("/")) -> MachineFacts:
    """The facts of this machine; `root` stands for the file system's root."""
    build = torch_build()
    return MachineFacts(
        torch_version=build.get("__version__"),
        cuda=build.get("cuda"),
        hip=build.get("hip"),
        torch_npu=importlib.util.find_spec("torch_npu") is not None,
        nvidia_devices=_count(root, DEVICE_NODES["nvidia"]),
        amd_devices=_amd_devices(root),
        npu_devices=_count(root, DEVICE_NODES["npu"]),
    )


def beside_cpu_torch() -> list[str]:
    """Installed packages that break `import transformers` beside a torch +cpu; empty beside any other build."""
    if not (torch_build().get("__version__") or "").endswith("+cpu"):
        return []
    return [name for name in BUILT_FOR_CUDA if importlib.util.find_spec(name)]


def refuse_broken_torch() -> None:
    """Say in a sentence what would otherwise be a trace from the middle of transformers.

    Raises
    ------
    UnsupportedError
        with the command that mends it.
    """
    found = beside_cpu_torch()
    if found:
        raise UnsupportedError(
            f"{', '.join(found)} beside torch +cpu breaks `import transformers`",
            where="this environment",
            remedy=f"run `{sys.executable} -m pip uninstall -y {' '.join(found)}`",
        )


def torch_build() -> dict[str, str | None]:
    """The constants of torch/version.py, read as text."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return {}
    file = Path(spec.submodule_search_locations[0]) / "version.py"
    if not file.is_file():
        return {}
    found: dict[str, str | None] = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and _text_or_none(value.value):
                found[target.id] = value.value
    return found


def _text_or_none(value: object) -> TypeGuard[str | None]:
    return value is None or isinstance(value, str)


def _count(root: Path, pattern: str) -> int:
    return len(list((root / "dev").glob(pattern)))


def _amd_devices(root: Path) -> int:
    # Each node of the compute driver's topology is a CPU (no SIMD units) or a GPU.
    if not (root / "dev" / "kfd").exists():
        return 0
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    return sum(_simd_count(node) > 0 for node in nodes.glob("*/properties"))


def _simd_count(properties: Path) -> int:
    try:
        lines = properties.read_text(encoding="utf-8").splitlines()
    except OSError:
        # Nodes outside this container's device group cannot be read, and are not ours.
        return 0
    counts = [int(line.split()[1]) for line in lines if line.startswith("simd_count ")]
    return counts[0] if counts else 0
