# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old device functions over verl.platform; new code asks current_platform()."""

from types import ModuleType
from typing import Any

from omegaconf import OmegaConf, open_dict

from verl.platform import current_platform
from verl.platform.npu import ipc_supported, npu_versions

__all__ = [
    "auto_set_device",
    "check_ipc_version_support",
    "get_device_capability",
    "get_device_id",
    "get_device_name",
    "get_nccl_backend",
    "get_npu_versions",
    "get_resource_name",
    "get_torch_device",
    "get_visible_devices_keyword",
    "is_support_ipc",
    "is_torch_npu_available",
    "set_expandable_segments",
]

get_npu_versions = npu_versions
check_ipc_version_support = ipc_supported


def __getattr__(name: str) -> Any:
    # Constants in the old module; here they are asked when used, so that importing touches no device.
    if name == "is_cuda_available":
        return current_platform().device_type == "cuda"
    if name == "is_npu_available":
        return is_torch_npu_available()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_torch_npu_available(check_device: bool = True) -> bool:
    """Whether this is an Ascend machine, and (with `check_device`) this process can use a device."""
    platform = current_platform()
    return platform.name == "npu" and (not check_device or platform.is_available())


def get_resource_name() -> str:
    """Ray's resource of one device."""
    return current_platform().ray_resource


def get_visible_devices_keyword() -> str:
    """The variable that masks devices."""
    return current_platform().visible_devices_env


def get_device_name() -> str:
    """torch's name of the device type."""
    return current_platform().device_type


def get_torch_device() -> ModuleType:
    """torch's module of the device."""
    return current_platform().device_module


def get_device_id() -> int:
    """Index of the device in use."""
    return current_platform().current_device()


def get_nccl_backend() -> str:
    """torch.distributed's backend for device tensors."""
    return current_platform().collective


def set_expandable_segments(enable: bool) -> None:
    """Growable allocator segments, where the platform has them."""
    current_platform().set_expandable_segments(enable)


def auto_set_device(config: Any) -> None:
    """Write the device type into a recipe's own `config.trainer.device`; verl itself does not read it."""
    if OmegaConf.is_config(config) and OmegaConf.select(config, "trainer.device") not in (None, get_device_name()):
        with open_dict(config):
            config.trainer.device = get_device_name()


def get_device_capability(device_id: int = 0) -> tuple[int | None, int | None]:
    """(major, minor) of the compute capability, or nulls."""
    return current_platform().device_capability(device_id)


def is_support_ipc() -> bool:
    """Whether device memory can be shared between processes."""
    return current_platform().ipc != "none"
