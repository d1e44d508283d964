# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the cluster has, what a rank asks of it, and the sentence that refuses what it can never give."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ray

from verl.errors import ConfigError
from verl.platform import current_platform
from verl.platform.detect import OVERRIDE_ENV

# A process that imports torch and transformers takes 0.42 GB before it holds any weight.
MIN_RANK_BYTES = 420_000_000

# Entries that a message lists one by one.
_MAX_SHOWN = 8

_DEVICE_RESOURCES = {"cuda": "GPU", "npu": "NPU"}


@dataclass(frozen=True)
class Node:
    """One node that is alive, with its resources when nothing runs on it."""

    address: str
    total: dict[str, float]


def nodes() -> list[Node]:
    """Nodes that are alive."""
    return [Node(node["NodeManagerAddress"], node["Resources"]) for node in ray.nodes() if node["Alive"]]


def free() -> dict[str, float]:
    """What nobody holds at the moment, over all nodes."""
    return ray.available_resources()


def has_devices() -> bool:
    """Whether ranks get a device each: the cluster has some, and the job was not told to run on CPUs."""
    return device_resource(None) is not None


def device_resource(device_name: str | None) -> str | None:
    """Ray's resource for a device type; None for CPUs. Without a name, what the cluster has."""
    if device_name is None:
        if os.environ.get(OVERRIDE_ENV):
            return device_resource(current_platform().device_type)
        # The cluster, not this process: a driver on a head node sees no device.
        known = {resource for node in nodes() for resource in node.total}
        return next((resource for resource in _DEVICE_RESOURCES.values() if resource in known), None)
    if device_name == "cpu":
        return None
    if device_name in _DEVICE_RESOURCES:
        return _DEVICE_RESOURCES[device_name]
    if device_name == current_platform().device_type:
        return current_platform().ray_resource
    raise ConfigError("unknown device type", got=device_name, expected=f"cpu or one of {list(_DEVICE_RESOURCES)}")


def cpu_per_rank(free_cpus: float, ranks: int) -> float:
    """CPUs that each of `ranks` bundles asks: at most one, at least a hundredth, cut to hundredths."""
    return max(0.01, math.floor(100 * min(1.0, free_cpus / ranks)) / 100)


def bundle(ranks: int, resource: str | None, device_share: float = 1.0) -> dict[str, float]:
    """What one rank's slot reserves."""
    # Half of what is free: the other half stays for pools and tasks that come later, so that a job with many pools
    # on few cores never waits for itself.
    cpus = cpu_per_rank(free().get("CPU", 0.0) / 2, ranks)
    return {"CPU": cpus} | ({resource: device_share} if resource else {})


def refuse_impossible(
    slots_per_node: Sequence[int],
    resource: str | None,
    accelerator_type: str | None,
    who: str,
    device_share: float = 1.0,
) -> None:
    """Raise a ConfigError where even an empty cluster could not hold the slots; each entry needs a node's room."""
    room = {node.address: _slots(node, resource, accelerator_type, device_share) for node in nodes()}
    left = sorted(room.values(), reverse=True)
    for slots in sorted(slots_per_node, reverse=True):
        # First fit, largest first: an entry may share a node with others of the job.
        host = next((index for index, free_slots in enumerate(left) if free_slots >= slots), None)
        if host is None:
            need = _need(resource, accelerator_type, device_share)
            raise ConfigError(
                f"the cluster cannot hold {who}",
                got=f"{_shown(slots_per_node)}, each with {need}",
                expected="at most " + ", ".join(f"{slots} on {address}" for address, slots in room.items()),
                remedy="lower nnodes or n_gpus_per_node, or add nodes to the Ray cluster",
            )
        left[host] -= slots


def _shown(slots_per_node: Sequence[int]) -> str:
    if len(slots_per_node) <= _MAX_SHOWN:
        return f"{list(slots_per_node)} ranks per node"
    return f"{sum(slots_per_node)} ranks in {len(slots_per_node)} parts, of at most {max(slots_per_node)}"


def _slots(node: Node, resource: str | None, accelerator_type: str | None, device_share: float) -> int:
    if accelerator_type is not None and accelerator_type not in node.total:
        return 0
    if resource is not None:
        # Whole ranks on each device: what is left of two devices does not make a third place.
        return int(node.total.get(resource, 0)) * int(1 / device_share + 1e-9)
    # On CPUs ranks may outnumber cores, but not memory.
    return int(node.total.get("memory", 0) // MIN_RANK_BYTES)


def _need(resource: str | None, accelerator_type: str | None, device_share: float) -> str:
    amount = "one" if device_share == 1 else f"{device_share:g} of a"
    what = f"{amount} {resource}" if resource else f"{MIN_RANK_BYTES / 1e9:.2f} GB of memory"
    return what + (f" of type {accelerator_type}" if accelerator_type else "")


def describe(resources: Mapping[str, float]) -> str:
    """The resources that people count, in words."""
    shown = {name: amount for name, amount in resources.items() if name in ("CPU", "GPU", "NPU")}
    return ", ".join(f"{amount:g} {name}" for name, amount in sorted(shown.items())) or "nothing"
