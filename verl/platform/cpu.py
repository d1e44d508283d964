# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""CPU: gloo and shared memory. A platform, not an absence."""

import psutil

from verl.platform.base import Platform
from verl.platform.facts import MachineFacts


class CPUPlatform(Platform):
    """A rank is a process; nothing has to be waited for, and memory is the machine's."""

    name = "cpu"
    vendor = "cpu"
    device_type = "cpu"
    collective = "gloo"
    # Masks nothing; a mask that the user exported is handed on unchanged.
    visible_devices_env = "CUDA_VISIBLE_DEVICES"
    ray_resource = "CPU"

    @classmethod
    def detect(cls, facts: MachineFacts) -> str | None:
        build = (facts.hip and f"HIP {facts.hip}") or (facts.cuda and f"CUDA {facts.cuda}")
        if build:
            return f"torch is built for {build}, but no device is here; on a head node set VERL_PLATFORM"
        return f"torch {facts.torch_version} has no accelerator" if facts.torch_version else "no torch is installed"

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return psutil.cpu_count() or 1

    def current_device(self) -> int:
        return 0

    def set_device(self, index: int) -> None:
        """All ranks share the one device."""

    def synchronize(self) -> None:
        """Nothing runs behind our back."""

    def empty_cache(self) -> None:
        """Nothing is cached."""

    def memory_info(self) -> dict[str, int]:
        machine, own = psutil.virtual_memory(), psutil.Process().memory_info().rss
        return {"allocated": own, "reserved": own, "free": machine.available, "total": machine.total}

    def device_name(self, index: int = 0) -> str:
        return "CPU"

    def random_state(self) -> None:
        """The host's state is saved for every platform; there is no other."""

    def set_random_state(self, state: object) -> None:
        """A state saved on an accelerator is left aside."""
