# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""AMD: RCCL under NCCL's name, HIP IPC, masks by three names. Differences to CUDA only."""

from collections.abc import Mapping
from typing import ClassVar

from verl.platform.base import IPC
from verl.platform.cuda import CUDAPlatform
from verl.platform.facts import MachineFacts
from verl.platform.visible_devices import one_mask

ARCHITECTURES = {"gfx942": "MI300X, MI300A, MI325X", "gfx950": "MI350X, MI355X"}
"""What this package is made for; other chips may work."""


class ROCmPlatform(CUDAPlatform):
    """AMD Instinct GPUs; torch calls them cuda."""

    name = "rocm"
    vendor = "rocm"
    ipc: IPC = "hip"
    ray_noset_env: ClassVar[tuple[str, ...]] = (
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",
        "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES",
        "RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES",
    )
    profiler_tool = "rocprof"

    @classmethod
    def detect(cls, facts: MachineFacts) -> str | None:
        if facts.hip and facts.amd_devices:
            return f"torch is built for HIP {facts.hip}, and {facts.amd_devices} device(s) are here"
        return None

    def visible_devices_changes(self, environ: Mapping[str, str]) -> dict[str, str | None]:
        return one_mask(environ)

    def server_actor_env(self) -> dict[str, str]:
        # Ray hides all devices from an actor that asked for none, and HIP reads the mask at import.
        return {**super().server_actor_env(), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

    def rollout_env(self) -> dict[str, str]:
        return {**super().rollout_env(), "HSA_NO_SCRATCH_RECLAIM": "1"}

    def worker_env(self) -> dict[str, str]:
        # Without it RCCL on MI300X fails FSDP's start with ncclSystemError.
        return {**super().worker_env(), "HSA_NO_SCRATCH_RECLAIM": "1"}

    def device_architecture(self, index: int = 0) -> str:
        """gfx942, gfx950 …"""
        return self.device_module.get_device_properties(index).gcnArchName.partition(":")[0]
