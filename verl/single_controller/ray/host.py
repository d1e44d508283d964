# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""How a rank's process starts: in two steps, so that rank 0 can choose the rendezvous port in the very process that
will listen on it. First the process says where it runs, then it gets its environment and the worker's own `__init__`
runs. Free of torch: what an actor imports is its worker's business.
"""

import os
import socket
from dataclasses import dataclass
from typing import Any

import ray

from verl.platform import current_platform
from verl.utils.net_utils import get_free_port
from verl.utils.ray_utils import ray_noset_visible_devices


@dataclass(frozen=True)
class Seat:
    """Where an actor's process runs."""

    pid: int
    node_id: str
    address: str
    hostname: str


def hosted(worker_cls: type) -> type:
    """A subclass whose `__init__` waits for `verl_start`."""

    class Hosted(worker_cls):
        def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], start_now: bool) -> None:
            if start_now:
                super().__init__(*args, **kwargs)
            else:
                self._verl_init = (args, kwargs)

        def verl_seat(self) -> Seat:
            """Where this process runs."""
            context = ray.get_runtime_context()
            return Seat(os.getpid(), context.get_node_id(), ray.util.get_node_ip_address(), socket.gethostname())

        def verl_rendezvous(self, ports: tuple[int, int] | None) -> tuple[str, str]:
            """An address and a port of this node that stays ours until the process ends."""
            address = ray.util.get_node_ip_address()
            port, self._verl_port_holder = get_free_port(address, with_alive_sock=True, ports=ports)
            return address.strip("[]"), str(port)

        def verl_start(self, env: dict[str, str], device_resource: str | None) -> None:
            """Take over the rank's environment and build the worker."""
            os.environ.update(env)
            platform = current_platform()
            for name, value in platform.worker_env().items():
                os.environ.setdefault(name, value)
            platform.settle_visible_devices()
            own_devices = ray.get_runtime_context().get_accelerator_ids().get(device_resource or "", [])
            if own_devices and ray_noset_visible_devices():
                # Ray left the mask alone: all devices that it was started with are visible, and this one is ours.
                os.environ["LOCAL_RANK"] = str(platform.ordinal_of(own_devices[0]))
            args, kwargs = self.__dict__.pop("_verl_init")
            super().__init__(*args, **kwargs)

    Hosted.__name__ = Hosted.__qualname__ = worker_cls.__name__
    Hosted.__module__ = worker_cls.__module__
    return Hosted
