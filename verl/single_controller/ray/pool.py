# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Resource pools on Ray: placement groups for ranks, refused in a sentence where the cluster cannot hold them."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from verl.errors import ConfigError
from verl.single_controller.base.resource_pool import ResourcePool
from verl.single_controller.ray import capacity
from verl.waits import expired, waiting_on

DEFAULT_PLACEMENT_DEADLINE_S = 120.0


class RayResourcePool(ResourcePool):
    """`process_on_nodes[i]` slots on the i-th node; each node's slots are one placement group.

    A slot holds a device (`use_gpu`), or `device_share` of one, and a share of a CPU. The groups are made at the first
    use.
    """

    def __init__(
        self,
        process_on_nodes: Sequence[int] | None = None,
        use_gpu: bool = True,
        name_prefix: str | None = None,
        max_colocate_count: int = 10,
        detached: bool = False,
        accelerator_type: str | None = None,
        placement_deadline_s: float = DEFAULT_PLACEMENT_DEADLINE_S,
        device_share: float = 1.0,
    ) -> None:
        super().__init__(process_on_nodes, max_colocate_count)
        self.use_gpu = use_gpu
        self.name_prefix = name_prefix or f"pool_{uuid.uuid4().hex[:6]}"
        self.detached = detached
        self.accelerator_type = accelerator_type
        self.placement_deadline_s = placement_deadline_s
        if not 0 < device_share <= 1:
            raise ConfigError("a slot holds a device or part of one", got=device_share, expected="in (0, 1]")
        self.device_share = device_share
        self.pgs: list[PlacementGroup] | None = None

    def get_placement_groups(
        self, strategy: str = "STRICT_PACK", name: str | None = None, device_name: str | None = None
    ) -> list[PlacementGroup]:
        """One ready placement group per node, made once.

        Raises
        ------
        ConfigError
            the cluster could not hold the slots even if it were empty.
        WaitTimeout
            others held the resources for longer than `placement_deadline_s`.
        """
        if self.pgs is None:
            resource = capacity.device_resource(device_name) if self.use_gpu else None
            capacity.refuse_impossible(self.store, resource, self.accelerator_type, self.name_prefix, self.device_share)
            bundle = capacity.bundle(self.world_size, resource, self.device_share)
            self.pgs = self._reserve(bundle, strategy, name or self.name_prefix)
        return self.pgs

    def _reserve(self, bundle: dict[str, float], strategy: str, name: str) -> list[PlacementGroup]:
        pgs = []
        for node, slots in enumerate(self.store):
            bundles = [dict(bundle) for _ in range(slots)]
            if self.accelerator_type is not None:
                # Ray marks nodes by such a resource; a trace of it on one bundle is enough to choose the node.
                bundles[0][self.accelerator_type] = 1e-4
            lifetime = "detached" if self.detached else None
            # A name would have to be unique on the cluster, where two jobs may meet: the id is enough.
            unique = f"{name}_{node}_{uuid.uuid4().hex[:6]}"
            pgs.append(placement_group(bundles, strategy=strategy, name=unique, lifetime=lifetime))
        self._await(pgs, bundle)
        return pgs

    def _await(self, pgs: list[PlacementGroup], bundle: dict[str, float]) -> None:
        ready = [pg.ready() for pg in pgs]
        with waiting_on("placement", self.name_prefix, self.placement_deadline_s):
            _, pending = ray.wait(ready, num_returns=len(ready), timeout=self.placement_deadline_s)
        if pending:
            for pg in pgs:
                remove_placement_group(pg)
            raise expired(
                f"room for {self.store} slots of {bundle}",
                f"Ray ({self.name_prefix}); free now: {capacity.describe(capacity.free())}",
                self.placement_deadline_s,
                remedy="another job or pool holds the resources: end it, or ask for fewer ranks",
            )

    def release(self) -> None:
        """Give the slots back; actors in them end."""
        for pg in self.pgs or ():
            remove_placement_group(pg)
        self.pgs = None


class SubRayResourcePool(RayResourcePool):
    """Some slots of another pool: `subgroup_world_size` from `start_bundle_index` on, counted over its nodes."""

    def __init__(
        self, placement_groups: list[PlacementGroup], start_bundle_index: int, subgroup_world_size: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.pgs = placement_groups
        self.start_bundle_index = start_bundle_index
        self.subgroup_world_size = subgroup_world_size

    @property
    def world_size(self) -> int:
        return self.subgroup_world_size

    def release(self) -> None:
        """The slots belong to the pool they were taken from; nothing to give back."""


@dataclass
class ResourcePoolManager:
    """Pools by name, and which role lives in which pool.

    `max_colocate_count` worker groups may share a pool's slots, each actor with that fraction of the device.
    """

    resource_pool_spec: dict[str, list[int]]
    mapping: dict[Any, str]
    resource_pool_dict: dict[str, RayResourcePool] = field(default_factory=dict)
    max_colocate_count: int = 3
    use_gpu: bool | None = None
    device_share: float = 1.0

    def create_resource_pool(self) -> None:
        """Make the pools and refuse, before anything is placed, what they need together and the cluster lacks."""
        for name, process_on_nodes in self.resource_pool_spec.items():
            if name not in self.resource_pool_dict:
                self.resource_pool_dict[name] = RayResourcePool(
                    process_on_nodes,
                    use_gpu=capacity.has_devices() if self.use_gpu is None else self.use_gpu,
                    name_prefix=name,
                    max_colocate_count=self.max_colocate_count,
                    device_share=self.device_share,
                )
        slots = [count for pool in self.resource_pool_dict.values() for count in pool.store]
        resource = capacity.device_resource(None) if any(p.use_gpu for p in self.resource_pool_dict.values()) else None
        capacity.refuse_impossible(slots, resource, None, ", ".join(self.resource_pool_dict), self.device_share)

    def get_resource_pool(self, role: Any) -> RayResourcePool:
        """The pool of a role."""
        if role not in self.mapping:
            raise ConfigError("no resource pool for this role", got=role, expected=f"one of {list(self.mapping)}")
        return self.resource_pool_dict[self.mapping[role]]

    def get_n_gpus(self) -> int:
        """Slots of all pools."""
        return sum(count for counts in self.resource_pool_spec.values() for count in counts)


def sort_placement_group_by_node_ip(pgs: list[PlacementGroup]) -> list[PlacementGroup]:
    """By address of the node, so that ranks are numbered alike in every run."""
    addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}

    def address_of(pg: PlacementGroup) -> tuple[Any, ...]:
        node_id = placement_group_table(pg)["bundles_to_node_id"][0]
        address = addresses.get(node_id, "")
        return tuple(int(part) if part.isdigit() else 0 for part in address.split(".")), address

    return sorted(pgs, key=address_of)


def extract_pg_from_exist(
    resource_pools: dict[str, RayResourcePool], src_role_names: list[str], resource_pool: RayResourcePool
) -> list[PlacementGroup]:
    """Placement groups of the named pools that have room for `resource_pool`'s nodes, the tightest fit first."""
    offered = sorted(
        (
            (pg.bundle_count, index, pg)
            for name, pool in resource_pools.items()
            if name in src_role_names
            for index, pg in enumerate(pool.get_placement_groups())
        ),
        key=lambda entry: entry[:2],
    )
    chosen: dict[int, PlacementGroup] = {}
    for node, slots in sorted(enumerate(resource_pool.store), key=lambda entry: -entry[1]):
        fit = next((entry for entry in offered if entry[0] >= slots), None)
        if fit is None:
            raise ConfigError(
                "the named pools have no node with enough slots", where=", ".join(src_role_names), got=f"{slots} slots"
            )
        offered.remove(fit)
        chosen[node] = fit[2]
    return [chosen[node] for node in range(len(resource_pool.store))]


def split_resource_pool(resource_pool: RayResourcePool, split_size: int | list[int]) -> list[SubRayResourcePool]:
    """Cut a pool's slots, in rank order, into parts of one size or of the given sizes."""
    total = resource_pool.world_size
    sizes = [split_size] * (total // split_size) if isinstance(split_size, int) else list(split_size)
    if sum(sizes) != total or any(size < 1 for size in sizes):
        raise ConfigError("the parts do not make up the pool", got=f"{sizes}", expected=f"a sum of {total}")
    start = getattr(resource_pool, "start_bundle_index", 0)
    pgs = resource_pool.get_placement_groups()
    return [
        SubRayResourcePool(
            placement_groups=pgs,
            start_bundle_index=start + sum(sizes[:part]),
            subgroup_world_size=size,
            process_on_nodes=resource_pool.store,
            use_gpu=resource_pool.use_gpu,
            name_prefix=f"{resource_pool.name_prefix}_{part}",
            max_colocate_count=resource_pool.max_colocate_count,
            device_share=resource_pool.device_share,
        )
        for part, size in enumerate(sizes)
    ]


def merge_resource_pool(rp1: RayResourcePool, rp2: RayResourcePool) -> RayResourcePool:
    """One pool over the slots of both, which must be of one kind."""
    for attribute in ("use_gpu", "max_colocate_count", "detached", "device_share"):
        if getattr(rp1, attribute) != getattr(rp2, attribute):
            raise ConfigError("pools of different kinds cannot be merged", where=attribute)
    if isinstance(rp1, SubRayResourcePool) or isinstance(rp2, SubRayResourcePool):
        raise ConfigError("parts of a pool cannot be merged", remedy="merge the pools they were taken from")
    merged = RayResourcePool(
        [*rp1.store, *rp2.store],
        rp1.use_gpu,
        f"{rp1.name_prefix}_{rp2.name_prefix}",
        rp1.max_colocate_count,
        device_share=rp1.device_share,
    )
    merged.pgs = [*rp1.get_placement_groups(), *rp2.get_placement_groups()]
    return merged
