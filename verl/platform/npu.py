# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Huawei Ascend: HCCL; tested for import and selection only."""

import os
import platform as host
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from verl.platform.base import IPC, Platform
from verl.platform.facts import MachineFacts
from verl.utils.import_utils import optional_import

# First driver and CANN that can share device memory between processes.
IPC_SOFTWARE = (25, 3)
IPC_CANN = (8, 3)


class NPUPlatform(Platform):
    """Ascend NPUs through torch_npu."""

    name = "npu"
    vendor = "ascend"
    device_type = "npu"
    collective = "hccl"
    visible_devices_env = "ASCEND_RT_VISIBLE_DEVICES"
    ray_resource = "NPU"
    ray_noset_env: ClassVar[tuple[str, ...]] = ("RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES",)
    profiler_tool = "npu"

    @classmethod
    def detect(cls, facts: MachineFacts) -> str | None:
        if facts.torch_npu and facts.npu_devices:
            return f"torch_npu is installed, and {facts.npu_devices} device(s) are here"
        return None

    @property
    def ipc(self) -> IPC:  # type: ignore[override]
        software, cann = npu_versions()
        return "acl" if ipc_supported(software, cann) else "none"

    @property
    def device_module(self):
        # Importing torch_npu is what registers torch.npu.
        optional_import("torch_npu", needed_for="VERL_PLATFORM=npu")
        return super().device_module

    def set_expandable_segments(self, enable: bool) -> None:
        self.device_module.memory._set_allocator_settings(f"expandable_segments:{enable}")


def npu_versions(environ: Mapping[str, str] = os.environ) -> tuple[str | None, str | None]:
    """(driver software version, CANN version), each null where it cannot be found."""
    return _software_version(), _cann_version(environ)


def ipc_supported(software: str | None, cann: str | None) -> bool:
    """Whether these versions can share device memory between processes."""
    return _numbers(software) >= IPC_SOFTWARE and _numbers(cann) >= IPC_CANN


def _software_version() -> str | None:
    tool = shutil.which("npu-smi")
    if tool is None:
        return None
    done = subprocess.run(
        [tool, "info", "-t", "board", "-i", "0"], capture_output=True, text=True, timeout=30, check=False
    )
    found = re.search(r"Software Version\s*:\s*(\S+)", done.stdout)
    return found.group(1) if found else None


def _cann_version(environ: Mapping[str, str]) -> str | None:
    home = Path(environ.get("ASCEND_HOME_PATH", "/usr/local/Ascend/ascend-toolkit/latest"))
    file = home / f"{host.machine()}-linux" / "ascend_toolkit_install.info"
    if not file.is_file():
        return None
    found = re.search(r"^version=(\S+)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return found.group(1) if found else None


def _numbers(version: str | None) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return tuple(map(int, found.groups())) if found else ()
