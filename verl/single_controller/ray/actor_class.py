# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`RayClassWithInitArgs`: a worker class, its arguments and its Ray options.

An actor starts in two steps, so that rank 0 can choose the rendezvous port in the very process that will listen on
it: first the process says where it runs, then it gets its environment and the worker's own `__init__` runs.
"""

import os
import socket
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from verl.single_controller.base.worker_group import ClassWithInitArgs
from verl.single_controller.ray import capacity
from verl.single_controller.ray.runtime_env import merge_runtime_env
from verl.utils.net_utils import get_free_port, host_in_url
from verl.utils.ray_utils import ray_noset_visible_devices


@dataclass(frozen=True)
class Seat:
    """Where an actor's process runs."""

    pid: int
    node_id: str
    address: str
    hostname: str


def underlying_class(cls: Any) -> type:
    """The Python class behind a Ray actor class."""
    metadata = getattr(cls, "__ray_metadata__", None)
    return cls if metadata is None else metadata.modified_class


def hosted(worker_cls: type) -> type:
    """A subclass whose `__init__` waits for `verl_start`."""

    class Hosted(worker_cls):
        def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._verl_init = (args, kwargs)

        def verl_seat(self) -> Seat:
            """Where this process runs."""
            context = ray.get_runtime_context()
            return Seat(os.getpid(), context.get_node_id(), ray.util.get_node_ip_address(), socket.gethostname())

        def verl_rendezvous(self, ports: tuple[int, int] | None) -> tuple[str, str]:
            """An address and a port of this node that stays ours until the process ends."""
            address = ray.util.get_node_ip_address()
            port, self._verl_port_holder = get_free_port(address, with_alive_sock=True, ports=ports)
            return host_in_url(address), str(port)

        def verl_start(self, env: dict[str, str], device_resource: str | None) -> None:
            """Take over the rank's environment and build the worker."""
            os.environ.update(env)
            own_devices = ray.get_runtime_context().get_accelerator_ids().get(device_resource or "", [])
            if own_devices and ray_noset_visible_devices():
                # Ray left the mask alone: all devices of the node are visible, and this one is ours.
                os.environ["LOCAL_RANK"] = own_devices[0]
            args, kwargs = self.__dict__.pop("_verl_init")
            super().__init__(*args, **kwargs)

    Hosted.__name__ = Hosted.__qualname__ = worker_cls.__name__
    Hosted.__module__ = worker_cls.__module__
    return Hosted


class RayClassWithInitArgs(ClassWithInitArgs):
    """A worker class (as it is, or wrapped by `ray.remote`) with the arguments of its `__init__`."""

    def __init__(self, cls: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cls, *args, **kwargs)
        self._options: dict[str, Any] = dict(getattr(cls, "_default_options", None) or {})
        self._additional_resource: dict[str, float] = {}
        self._actor_cls: Any = None

    @property
    def worker_cls(self) -> type:
        """The worker's Python class."""
        return underlying_class(self.cls)

    @property
    def options(self) -> dict[str, Any]:
        """Ray options of each actor."""
        return self._options

    def set_additional_resource(self, additional_resource: dict[str, float]) -> None:
        """Resources that each actor asks beside its share of the slot."""
        self._additional_resource = dict(additional_resource)

    def update_options(self, options: dict[str, Any]) -> None:
        """Set Ray options of each actor; the environment in `runtime_env` is added to what is there."""
        runtime_env = merge_runtime_env(self._options.get("runtime_env"), options.get("runtime_env"))
        self._options = {**self._options, **options} | ({"runtime_env": runtime_env} if runtime_env else {})

    def __call__(
        self,
        placement_group: Any = None,
        placement_group_bundle_idx: int = 0,
        use_gpu: bool = True,
        num_gpus: float = 1,
        sharing_with: Any = None,
        device_name: str | None = None,
    ) -> Any:
        """Start one actor in a slot (or beside `sharing_with`, on its node) and return its handle at once."""
        if self._actor_cls is None:
            self._actor_cls = ray.remote(hosted(self.worker_cls))
        options = dict(self._options)
        resources = dict(options.pop("resources", None) or {}) | self._additional_resource
        if sharing_with is not None:
            node_id = ray.get(sharing_with.verl_seat.remote(), timeout=60).node_id
            options["scheduling_strategy"] = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                node_id=node_id, soft=False
            )
            options.setdefault("num_cpus", 0)
        elif placement_group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                placement_group=placement_group, placement_group_bundle_index=placement_group_bundle_idx
            )
        resource = capacity.device_resource(device_name) if use_gpu and sharing_with is None else None
        if resource == "GPU":
            options["num_gpus"] = num_gpus
        elif resource is not None:
            resources[resource] = num_gpus
        if resources:
            options["resources"] = resources
        return self._actor_cls.options(**options).remote(self.args, self.kwargs)
