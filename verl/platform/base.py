# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`Platform`: what one kind of machine can do. Asking for it loads no torch; using a device does."""

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar, Literal

from verl.platform.facts import MachineFacts
from verl.platform.flops import peak_flops
from verl.platform.visible_devices import ordinal
from verl.utils.import_utils import optional_import

IPC = Literal["cuda", "hip", "acl", "none"]
ALLOCATOR_ENV = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF")


def expandable_segments(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks torch's allocator for growable segments; the first name that is set decides."""
    given = next((environ[name] for name in ALLOCATOR_ENV if environ.get(name)), "")
    settings = dict(entry.partition(":")[::2] for entry in given.replace(" ", "").split(","))
    return settings.get("expandable_segments", "").lower() == "true"


class Platform:
    """Base of all platforms; a third party's subclass is named in the entry point group verl.platforms."""

    name: ClassVar[str]
    """What VERL_PLATFORM takes."""
    vendor: ClassVar[str]
    """cpu, nvidia, rocm, ascend, or a name of yours."""
    device_type: ClassVar[str]
    """torch's name of the device: cpu, cuda (ROCm too), npu."""
    collective: ClassVar[str]
    """torch.distributed's backend for device tensors; RCCL answers to nccl."""
    ipc: IPC = "none"
    """How device memory can be shared between processes; none: through shared memory of the host."""
    visible_devices_env: ClassVar[str]
    """The one variable that masks devices inside our workers."""
    ray_resource: ClassVar[str]
    """Ray's resource of one device."""
    ray_noset_env: ClassVar[tuple[str, ...]] = ()
    """Flags that keep Ray from masking devices of an actor that sets its own mask."""
    profiler_tool: ClassVar[str] = "torch"
    """System profiler beside torch's own: nsys, rocprof, npu."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    @classmethod
    def detect(cls, facts: MachineFacts) -> str | None:
        """Why this platform fits the machine, or null."""
        raise NotImplementedError

    def describe(self) -> str:
        """One line: the choice and its reason."""
        return f"{self.name} ({self.reason}); collective {self.collective}, device IPC {self.ipc}"

    # Environment of processes

    def visible_devices_changes(self, environ: Mapping[str, str]) -> dict[str, str | None]:
        """What has to change so that only `visible_devices_env` masks devices; null removes a variable."""
        return {}

    def settle_visible_devices(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Make `visible_devices_env` the only mask; call before torch touches a device."""
        for name, value in self.visible_devices_changes(environ).items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value

    def show_only(self, devices: str, environ: MutableMapping[str, str] = os.environ) -> None:
        """Mask all but `devices` (comma-separated, as Ray names them); masks that contradict are an error first."""
        self.settle_visible_devices(environ)
        environ[self.visible_devices_env] = devices

    def ordinal_of(self, device: str, environ: Mapping[str, str] = os.environ) -> int:
        """The number under which a process with this settled environment sees `device`, named as Ray names it."""
        return ordinal(device, environ.get(self.visible_devices_env))

    def server_actor_env(self) -> dict[str, str]:
        """For an actor that holds no device itself and masks those of its children."""
        return {name: "1" for name in self.ray_noset_env}

    def rollout_env(self) -> dict[str, str]:
        """For the processes of the rollout engine; a value that the user exported wins."""
        return {}

    def worker_env(self) -> dict[str, str]:
        """For training workers; a value that the user exported wins."""
        return {}

    # The device, through torch

    @property
    def device_module(self) -> ModuleType:
        """torch's module of the device, such as torch.cuda."""
        torch = optional_import("torch", needed_for="using a device")
        return torch.get_device_module(self.device_type)

    def is_available(self) -> bool:
        """Whether this process can use a device now."""
        return self.device_module.is_available()

    def device_count(self) -> int:
        """Devices that this process sees."""
        return self.device_module.device_count()

    def current_device(self) -> int:
        """Index of the device in use."""
        return self.device_module.current_device()

    def set_device(self, index: int) -> None:
        """Use the device of this index."""
        self.device_module.set_device(index)

    def synchronize(self) -> None:
        """Wait for the device."""
        self.device_module.synchronize()

    def empty_cache(self) -> None:
        """Give cached device memory back."""
        self.device_module.empty_cache()

    def ipc_collect(self) -> None:
        """Release mapped memory of other processes, where there is such a thing."""
        if self.ipc != "none" and hasattr(self.device_module, "ipc_collect"):
            self.device_module.ipc_collect()

    def memory_info(self) -> dict[str, int]:
        """Bytes: allocated and reserved by this process, free and total of the device."""
        module = self.device_module
        free, total = module.mem_get_info()
        return {
            "allocated": module.memory_allocated(),
            "reserved": module.memory_reserved(),
            "free": free,
            "total": total,
        }

    def set_expandable_segments(self, enable: bool) -> None:
        """Growable allocator segments; memory in them cannot be exported by IPC."""

    @contextmanager
    def exportable_memory(self) -> Iterator[None]:
        """Device memory allocated inside can be exported by IPC, also where growable segments are configured."""
        if not expandable_segments(os.environ):
            yield
            return
        self.set_expandable_segments(False)
        try:
            yield
        finally:
            self.set_expandable_segments(True)

    def device_name(self, index: int = 0) -> str:
        """The product name."""
        return self.device_module.get_device_name(index)

    def device_capability(self, index: int = 0) -> tuple[int | None, int | None]:
        """(major, minor) of the compute capability, or nulls."""
        return (None, None)

    def peak_flops(self, device_name: str | None = None) -> float | None:
        """Dense bf16 operations per second of one device; null and one warning for an unknown product."""
        return peak_flops(device_name or self.device_name())

    @property
    def attn_implementation(self) -> str:
        """Attention for models that name none."""
        return "sdpa"

    def random_state(self) -> Any:
        """The device's random state, or null where there is none."""
        return self.device_module.get_rng_state() if self.is_available() else None

    def set_random_state(self, state: Any) -> None:
        """Put a state back; without a device a saved device state is left aside."""
        if state is not None and self.is_available():
            self.device_module.set_rng_state(state)
