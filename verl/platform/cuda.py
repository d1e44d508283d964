# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA: NCCL and CUDA IPC."""

import importlib.util
from typing import ClassVar

from verl.platform.base import IPC, Platform
from verl.platform.facts import MachineFacts


class CUDAPlatform(Platform):
    """NVIDIA GPUs."""

    name = "cuda"
    vendor = "nvidia"
    device_type = "cuda"
    collective = "nccl"
    ipc: IPC = "cuda"
    visible_devices_env = "CUDA_VISIBLE_DEVICES"
    ray_resource = "GPU"
    ray_noset_env: ClassVar[tuple[str, ...]] = ("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",)
    profiler_tool = "nsys"

    @classmethod
    def detect(cls, facts: MachineFacts) -> str | None:
        if facts.cuda and facts.nvidia_devices:
            return f"torch is built for CUDA {facts.cuda}, and {facts.nvidia_devices} device(s) are here"
        return None

    def rollout_env(self) -> dict[str, str]:
        # NCCL's own allocator takes memory from the sleeping engine's.
        return {"NCCL_CUMEM_ENABLE": "0"}

    def worker_env(self) -> dict[str, str]:
        # Records of streams keep freed tensors alive until the next synchronisation.
        return {"TORCH_NCCL_AVOID_RECORD_STREAMS": "1"}

    def set_expandable_segments(self, enable: bool) -> None:
        self.device_module.memory._set_allocator_settings(f"expandable_segments:{enable}")

    def device_capability(self, index: int = 0) -> tuple[int | None, int | None]:
        return self.device_module.get_device_capability(index) if self.is_available() else (None, None)

    @property
    def attn_implementation(self) -> str:
        return "flash_attention_2" if importlib.util.find_spec("flash_attn") else "sdpa"
