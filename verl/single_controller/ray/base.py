# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Façade: the public path of everything about worker groups of Ray actors."""

from verl.single_controller.base.worker import Worker
from verl.single_controller.ray.actor_class import RayClassWithInitArgs
from verl.single_controller.ray.colocate import (
    create_colocated_worker_cls,
    create_colocated_worker_cls_fused,
    create_colocated_worker_raw_cls,
)
from verl.single_controller.ray.group import RayWorkerGroup
from verl.single_controller.ray.pool import (
    RayResourcePool,
    ResourcePoolManager,
    SubRayResourcePool,
    extract_pg_from_exist,
    merge_resource_pool,
    sort_placement_group_by_node_ip,
    split_resource_pool,
)

__all__ = [
    "RayClassWithInitArgs",
    "RayResourcePool",
    "RayWorkerGroup",
    "ResourcePoolManager",
    "SubRayResourcePool",
    "Worker",
    "create_colocated_worker_cls",
    "create_colocated_worker_cls_fused",
    "create_colocated_worker_raw_cls",
    "extract_pg_from_exist",
    "merge_resource_pool",
    "sort_placement_group_by_node_ip",
    "split_resource_pool",
]
