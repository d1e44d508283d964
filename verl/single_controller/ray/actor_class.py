# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`RayClassWithInitArgs`: a worker class, its arguments and its Ray options."""

from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from verl.single_controller.base.class_with_init_args import ClassWithInitArgs
from verl.single_controller.ray import capacity
from verl.single_controller.ray.host import hosted
from verl.single_controller.ray.runtime_env import merge_runtime_env

_SEAT_DEADLINE_S = 60.0


def underlying_class(cls: Any) -> type:
    """The Python class behind a Ray actor class."""
    metadata = getattr(cls, "__ray_metadata__", None)
    return cls if metadata is None else metadata.modified_class


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
        """Start one actor in a slot, or beside `sharing_with` on its node, and return its handle at once."""
        options: dict[str, Any] = {}
        if sharing_with is not None:
            node_id = ray.get(sharing_with.verl_seat.remote(), timeout=_SEAT_DEADLINE_S).node_id
            options = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False), "num_cpus": 0}
        elif placement_group is not None:
            options = slot_options(placement_group, placement_group_bundle_idx)
        resource = capacity.device_resource(device_name) if use_gpu and sharing_with is None else None
        return self.launch(options, resource, num_gpus, start_now=True)

    def launch(
        self, options: dict[str, Any], device_resource: str | None, num_devices: float, start_now: bool = False
    ) -> Any:
        """Start one actor; without `start_now` the worker is built by a later `verl_start`.

        Options that the class was given win over `options`; runtime environments are merged.
        """
        if self._actor_cls is None:
            self._actor_cls = ray.remote(hosted(self.worker_cls))
        runtime_env = merge_runtime_env(options.get("runtime_env"), self._options.get("runtime_env"))
        options = {**options, **self._options, "runtime_env": runtime_env or None}
        resources = dict(options.pop("resources", None) or {}) | self._additional_resource
        if device_resource == "GPU":
            options["num_gpus"] = num_devices
        elif device_resource is not None:
            resources[device_resource] = num_devices
        if resources:
            options["resources"] = resources
        return self._actor_cls.options(**options).remote(self.args, self.kwargs, start_now)


def slot_options(placement_group: PlacementGroup, bundle_index: int) -> dict[str, Any]:
    """Ray options that put an actor into a slot."""
    strategy = PlacementGroupSchedulingStrategy(placement_group, placement_group_bundle_index=bundle_index)
    # Without a number Ray would want a whole CPU of the slot, which may not have one.
    return {"scheduling_strategy": strategy, "num_cpus": 0}
