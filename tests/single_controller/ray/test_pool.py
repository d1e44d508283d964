# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pools: what the cluster can never hold is refused at once, what it cannot hold now is waited for with a deadline."""

import enum
import time

import pytest
import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from verl.errors import ConfigError, WaitTimeout
from verl.single_controller.ray import RayResourcePool, ResourcePoolManager, SubRayResourcePool, capacity
from verl.single_controller.ray.pool import (
    extract_pg_from_exist,
    merge_resource_pool,
    sort_placement_group_by_node_ip,
    split_resource_pool,
)

pytestmark = pytest.mark.usefixtures("ray_cluster")


class Role(enum.Enum):
    ACTOR = enum.auto()
    ROLLOUT = enum.auto()
    CRITIC = enum.auto()


@pytest.mark.parametrize(
    ("free", "ranks", "expected"), [(8, 2, 1.0), (4, 8, 0.5), (1, 3, 0.33), (0, 4, 0.01), (0.5, 100, 0.01), (2, 1, 1.0)]
)
def test_a_rank_asks_at_most_one_cpu_and_at_least_a_hundredth(free: float, ranks: int, expected: float) -> None:
    assert capacity.cpu_per_rank(free, ranks) == pytest.approx(expected)


def test_a_pool_that_no_machine_could_hold_is_refused_at_once() -> None:
    start_s = time.monotonic()
    with pytest.raises(ConfigError, match=r"cannot hold big.*\[9999\] ranks.*GB of memory.*at most \d+ on"):
        RayResourcePool([9999], name_prefix="big").get_placement_groups()
    with pytest.raises(ConfigError, match=r"each with one GPU.*at most 0 on"):
        RayResourcePool([1]).get_placement_groups(device_name="cuda")
    with pytest.raises(ConfigError, match=r"of type accelerator_type:MI300X.*at most 0"):
        RayResourcePool([1], accelerator_type="accelerator_type:MI300X").get_placement_groups()
    with pytest.raises(ConfigError, match="unknown device type"):
        RayResourcePool([1]).get_placement_groups(device_name="abacus")
    assert time.monotonic() - start_s < 5


def test_more_ranks_than_cores_are_fine() -> None:
    pool = RayResourcePool([12])
    groups = pool.get_placement_groups()
    assert groups is pool.get_placement_groups(), "made once"
    assert [group.bundle_count for group in groups] == [12]
    assert groups[0].bundle_specs[0]["CPU"] <= 4 / 12
    pool.release()


def test_pools_that_come_later_always_find_room() -> None:
    pools = [RayResourcePool([2]) for _ in range(6)]
    for pool in pools:
        pool.get_placement_groups()
    for pool in pools:
        pool.release()


def hold_every_cpu() -> list[PlacementGroup]:
    """Slots that tests before gave back arrive in Ray's books a little later, so: until none is left."""
    held: list[PlacementGroup] = []
    idle_rounds = 0
    while idle_rounds < 3:
        cpus = capacity.free().get("CPU", 0.0)
        if cpus:
            held.append(placement_group([{"CPU": cpus}]))
            ray.get(held[-1].ready(), timeout=30)
        idle_rounds = 0 if cpus else idle_rounds + 1
        time.sleep(0.3)
    return held


def test_resources_that_others_hold_are_waited_for_until_the_deadline() -> None:
    held = hold_every_cpu()
    pool = RayResourcePool([2], name_prefix="late", placement_deadline_s=1.0)
    with pytest.raises(
        WaitTimeout, match=r"waited 1\.0 s for room for \[2\] slots of .*Ray \(late\); free now: .*another job"
    ):
        pool.get_placement_groups()
    for group in held:
        remove_placement_group(group)
    pool.placement_deadline_s = 30
    assert len(pool.get_placement_groups()) == 1, "nothing of the first attempt is left"
    pool.release()


def test_splitting_and_merging() -> None:
    whole = RayResourcePool([4], max_colocate_count=2)
    first, second, third = split_resource_pool(whole, [1, 2, 1])
    assert isinstance(second, SubRayResourcePool)
    assert (second.start_bundle_index, second.world_size, second.max_colocate_count) == (1, 2, 2)
    inner = split_resource_pool(second, 1)
    assert [part.start_bundle_index for part in inner] == [1, 2]
    assert first.get_placement_groups() == third.get_placement_groups() == whole.get_placement_groups()
    with pytest.raises(ConfigError, match=r"\[3, 3\].*a sum of 4"):
        split_resource_pool(whole, [3, 3])
    with pytest.raises(ConfigError, match="a sum of 4"):
        split_resource_pool(whole, 3)
    other = RayResourcePool([2], max_colocate_count=2)
    merged = merge_resource_pool(whole, other)
    assert merged.store == [4, 2]
    assert [group.bundle_count for group in merged.get_placement_groups()] == [4, 2]
    assert len(sort_placement_group_by_node_ip(merged.get_placement_groups())) == 2
    with pytest.raises(ConfigError, match="max_colocate_count"):
        merge_resource_pool(whole, RayResourcePool([2], max_colocate_count=3))
    with pytest.raises(ConfigError, match="parts of a pool"):
        merge_resource_pool(first, second)
    chosen = extract_pg_from_exist({"a": whole, "b": other}, ["a", "b"], RayResourcePool([2, 3]))
    assert [group.bundle_count for group in chosen] == [2, 4]
    with pytest.raises(ConfigError, match="5 slots"):
        extract_pg_from_exist({"a": whole}, ["a"], RayResourcePool([5]))
    whole.release()
    other.release()


def test_roles_find_their_pool() -> None:
    manager = ResourcePoolManager({"train": [2], "roll": [1]}, {Role.ACTOR: "train", Role.ROLLOUT: "roll"})
    manager.create_resource_pool()
    assert manager.get_resource_pool(Role.ACTOR).world_size == 2
    assert manager.get_resource_pool(Role.ROLLOUT) is manager.resource_pool_dict["roll"]
    assert manager.get_n_gpus() == 3
    with pytest.raises(ConfigError, match=r"no resource pool.*CRITIC"):
        manager.get_resource_pool(Role.CRITIC)


def test_pools_that_fit_one_by_one_but_not_together_are_refused_before_any_is_placed() -> None:
    most = int(ray.nodes()[0]["Resources"]["memory"] // capacity.MIN_RANK_BYTES)
    manager = ResourcePoolManager({"train": [most], "roll": [most]}, {})
    with pytest.raises(ConfigError, match="cannot hold train, roll"):
        manager.create_resource_pool()


def test_the_job_may_be_told_to_run_on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    assert not capacity.has_devices()
    assert capacity.device_resource("cpu") is None
    assert capacity.device_resource("cuda") == "GPU"
    assert capacity.device_resource("npu") == "NPU"
