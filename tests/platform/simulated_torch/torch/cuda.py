# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""torch.cuda over eight simulated devices: ROCR masks first, then HIP (or CUDA, which HIP reads where HIP is unset)."""

import os
from types import SimpleNamespace

PHYSICAL = [f"device-{number}" for number in range(int(os.environ.get("SIMULATED_DEVICES", "8")))]


def _masked(devices: list[str], mask: str | None) -> list[str]:
    if mask is None:
        return devices
    return [devices[int(entry)] for entry in mask.split(",") if entry != ""]


_SEEN = _masked(PHYSICAL, os.environ.get("ROCR_VISIBLE_DEVICES"))
_SEEN = _masked(_SEEN, os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES")))
_CALLS: list[str] = []
_CURRENT = 0


def seen() -> list[str]:
    return _SEEN


def calls() -> list[str]:
    return _CALLS


def is_available() -> bool:
    return bool(_SEEN)


def device_count() -> int:
    return len(_SEEN)


def current_device() -> int:
    return _CURRENT


def set_device(index: int) -> None:
    global _CURRENT
    assert 0 <= index < len(_SEEN), "invalid device ordinal"
    _CURRENT = index


def synchronize(device: object = None) -> None:
    _CALLS.append("synchronize")


def empty_cache() -> None:
    _CALLS.append("empty_cache")


def ipc_collect() -> None:
    _CALLS.append("ipc_collect")


def get_device_name(index: int = 0) -> str:
    return "AMD Instinct MI300X OAM"


def get_device_properties(device: object) -> SimpleNamespace:
    index = device if isinstance(device, int) else device.index
    physical = PHYSICAL.index(_SEEN[index])
    return SimpleNamespace(
        gcnArchName="gfx942:sramecc+:xnack-", pci_domain_id=0, pci_bus_id=16 * physical + 5, pci_device_id=0
    )


def get_device_capability(index: int = 0) -> tuple[int, int]:
    return (9, 4)


def mem_get_info() -> tuple[int, int]:
    return (150 << 30, 192 << 30)


def memory_allocated() -> int:
    return 10 << 30


def memory_reserved() -> int:
    return 12 << 30


memory = SimpleNamespace(_set_allocator_settings=lambda text: _CALLS.append(text))
