# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Groups of Ray actors: start, rendezvous, death, several roles in one process."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
import torch
import torch.distributed as dist
from ray import cloudpickle

from verl.errors import ConfigError, DataError, PeerLost, WaitTimeout
from verl.protocol import DataProto, all_gather_data_proto
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.single_controller.base.worker import Worker
from verl.single_controller.base.worker_group import RankCall
from verl.single_controller.ray import (
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    create_colocated_worker_cls,
)
from verl.single_controller.ray.group import _put_shared
from verl.single_controller.ray.pool import split_resource_pool

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.usefixtures("ray_cluster")


class Plain:
    """No `Worker`, so that its process loads no torch."""

    def __init__(self, behaviour: str = "") -> None:
        rank = int(os.environ["RANK"])
        if behaviour == "raise" and rank == 1:
            raise DataError("no such file", where="model.path")
        if behaviour == "hang" and rank == 1:
            time.sleep(60)

    def env(self, *names: str) -> dict[str, str | None]:
        return {name: os.environ.get(name) for name in names}

    def pid(self) -> int:
        return os.getpid()

    def nap(self, seconds: float) -> str:
        time.sleep(seconds)
        return "rested"

    def torch_is_loaded(self) -> bool:
        return "torch" in sys.modules


class Meeting(Worker):
    """Joins a gloo world at the rendezvous, once for all roles of the process."""

    def __init__(self, amount: int) -> None:
        super().__init__()
        self.amount = amount
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        self._register_dispatch_collect_info("m", dp_rank=self.rank, is_collect=True)

    @register(Dispatch.ONE_TO_ALL)
    def role_facts(self) -> tuple[int, int, list[str]]:
        return os.getpid(), self.amount, sorted(self.fused_worker_dict)

    @register(make_nd_compute_dataproto_dispatch_fn("m"))
    def gather(self, data: DataProto) -> DataProto:
        all_gather_data_proto(data, dist.group.WORLD)
        return data


class Waiting(Meeting):
    """A role with a coroutine."""

    @register(Dispatch.ONE_TO_ALL)
    async def nap_async(self) -> int:
        await asyncio.sleep(0.01)
        return self.rank


def start(cls: type, *args: Any, ranks: int = 2, **options: Any) -> RayWorkerGroup:
    return RayWorkerGroup(RayResourcePool([ranks]), RayClassWithInitArgs(ray.remote(cls), *args), **options)


def end(group: RayWorkerGroup) -> None:
    group.shutdown()
    group.resource_pool.release()


@pytest.fixture(scope="module")
def plain() -> Iterator[RayWorkerGroup]:
    group = start(Plain, name_prefix="plain", deadline_s=60, worker_env={"MY_OWN": "value"})
    yield group
    end(group)


def test_ranks_get_their_facts_and_one_rendezvous(plain: RayWorkerGroup) -> None:
    names = ("RANK", "WORLD_SIZE", "RAY_LOCAL_RANK", "RAY_LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MY_OWN")
    first, second = plain.call("env", *names)
    assert first | {"RANK": "1", "RAY_LOCAL_RANK": "1"} == second
    assert (first["RANK"], first["WORLD_SIZE"], first["RAY_LOCAL_WORLD_SIZE"]) == ("0", "2", "2")
    assert (first["MASTER_ADDR"], first["MASTER_PORT"]) == (plain.master_address, plain.master_port)
    assert first["MY_OWN"] == "value"
    env = plain.call("env", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WG_BACKEND", "WG_PREFIX")[1]
    assert env == {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WG_BACKEND": "ray", "WG_PREFIX": "plain"}


def test_a_process_loads_no_more_than_its_worker_needs(plain: RayWorkerGroup) -> None:
    # A build for devices has to be asked whether there is one.
    asked = bool(torch.version.cuda or torch.version.hip)
    assert plain.call("torch_is_loaded") == [asked, asked]


def test_the_group_keeps_its_own_variables(plain: RayWorkerGroup) -> None:
    with pytest.raises(ConfigError, match=r"worker_env.*MASTER_PORT"):
        RayWorkerGroup(plain.resource_pool, plain.ray_cls_with_init, worker_env={"MASTER_PORT": "1"})
    with pytest.raises(ConfigError, match="needs a resource pool"):
        RayWorkerGroup()


def test_actors_are_found_again_by_name_and_by_handle(plain: RayWorkerGroup) -> None:
    pids = plain.call("pid")
    assert len(set(pids)) == 2
    by_name = RayWorkerGroup.from_detached(worker_names=plain.worker_names)
    by_handle = RayWorkerGroup.from_detached(worker_handles=plain.workers, role="again")
    assert by_name.call("pid") == by_handle.call("pid") == pids
    with pytest.raises(WaitTimeout, match="again rank 0"):
        by_handle.call("nap", 1.0, deadline_s=0.2)


def test_parts_of_a_pool_hold_their_own_groups(plain: RayWorkerGroup) -> None:
    first, second = split_resource_pool(plain.resource_pool, 1)
    group = RayWorkerGroup(second, RayClassWithInitArgs(Plain))
    assert group.world_size == 1
    assert group.call("env", "WORLD_SIZE", "RANK") == [{"WORLD_SIZE": "1", "RANK": "0"}]
    assert group.master_port != plain.master_port
    assert first.world_size == 1
    group.shutdown()


def test_ports_come_from_the_range_that_is_given(plain: RayWorkerGroup) -> None:
    pool = split_resource_pool(plain.resource_pool, 1)[0]
    group = RayWorkerGroup(pool, RayClassWithInitArgs(Plain), master_port_range=[42000, 42100])
    assert 42000 <= int(group.master_port) <= 42100
    group.shutdown()


def test_a_worker_whose_init_fails_raises_its_own_error_with_the_rank(plain: RayWorkerGroup) -> None:
    with pytest.raises(DataError, match="no such file") as caught:
        RayWorkerGroup(plain.resource_pool, RayClassWithInitArgs(Plain, "raise"), name_prefix="bad")
    assert any("bad rank 1" in note for note in caught.value.__notes__)


def test_a_worker_whose_init_hangs_is_named_when_the_start_deadline_ends(plain: RayWorkerGroup) -> None:
    # On a busy machine the processes themselves may take that long; then it is they who are named.
    with pytest.raises(
        WaitTimeout, match=r"for (__init__ from slow rank 1 \(pid \d+|start of the process from .*slow rank 1)"
    ):
        RayWorkerGroup(
            plain.resource_pool,
            RayClassWithInitArgs(Plain, "hang"),
            name_prefix="slow",
            ray_wait_register_center_timeout=8,
        )


def test_a_rank_that_dies_is_named_at_once_while_another_still_works() -> None:
    group = start(Plain, name_prefix="doomed", deadline_s=60)
    lost: list[PeerLost] = []
    found = threading.Event()
    group.start_worker_aliveness_check(0.05, on_lost=lambda error: (lost.append(error), found.set()))
    pids = group.call("pid")
    assert group.dead_peers() == []
    handles = group.execute_all("nap", 30.0)
    start_s = time.monotonic()
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(PeerLost, match=rf"doomed rank 1 \(pid {pids[1]} on .*died during nap") as caught:
        group._wait(handles, "nap", 60)
    assert time.monotonic() - start_s < 10
    assert ray.util.get_node_ip_address() in str(caught.value)
    assert [peer.rank for peer in group.dead_peers()] == [1]
    assert found.wait(5)
    assert "rank 1" in str(lost[0])
    with pytest.raises(PeerLost, match="doomed rank 1"):
        asyncio.run(group.call_async("pid"))
    end(group)


def test_a_batch_that_several_ranks_get_is_put_into_the_store_once() -> None:
    shared, own = DataProto.from_dict({"x": torch.zeros(2)}), DataProto.from_dict({"x": torch.zeros(2)})
    calls = [RankCall(0, (shared, 1), {}), RankCall(1, (), {"data": shared}), RankCall(2, (own,), {"small": 1})]
    refs = _put_shared(calls)
    assert list(refs) == [id(shared)]
    assert len(ray.get(refs[id(shared)], timeout=10)) == 2


def test_several_roles_share_their_processes_and_the_rendezvous_works() -> None:
    builds = {"actor": RayClassWithInitArgs(Meeting, 1), "ref": RayClassWithInitArgs(ray.remote(Waiting), amount=2)}
    whole = RayWorkerGroup(RayResourcePool([2]), create_colocated_worker_cls(builds), deadline_s=60)
    groups = whole.spawn({"actor", "ref"})
    actor, ref = groups["actor"].role_facts(), groups["ref"].role_facts()
    assert [facts[0] for facts in actor] == [facts[0] for facts in ref]
    assert {facts[1] for facts in actor} == {1}
    assert {facts[1] for facts in ref} == {2}
    assert actor[0][2] == ["actor", "ref"]
    assert groups["ref"].nap_async() == [0, 1]
    assert not hasattr(groups["actor"], "nap_async")

    data = DataProto.from_dict({"x": torch.arange(4)}, {"uid": list("abcd")})
    gathered = groups["ref"].gather(data)
    assert gathered.batch["x"].tolist() == [0, 1, 2, 3] * 2
    assert gathered.non_tensor_batch["uid"].tolist() == list("abcdabcd")

    with pytest.raises(ConfigError, match=r"no such role.*'critic'"):
        whole.spawn({"critic"})
    whole.fuse({"actor"})
    assert whole.actor.role == "actor"
    with pytest.raises(PeerLost, match="ref rank 0"):
        ray.kill(whole.workers[0])
        groups["ref"].role_facts()
    end(whole)


def test_roles_that_cannot_share_a_process_are_refused() -> None:
    builds = {name: RayClassWithInitArgs(Plain) for name in ("a", "b")}
    builds["a"].update_options({"runtime_env": {"env_vars": {"X": "1", "Y": "1"}}})
    builds["b"].update_options({"runtime_env": {"env_vars": {"X": "2"}}})
    with pytest.raises(ConfigError, match=r"b: colocated roles need different environments.*X"):
        create_colocated_worker_cls(builds)
    with pytest.raises(ConfigError, match="nothing to colocate"):
        create_colocated_worker_cls({})


def test_a_single_actor_starts_beside_another_or_in_a_slot() -> None:
    pool = RayResourcePool([1])
    build = RayClassWithInitArgs(Plain)
    build.update_options({"runtime_env": {"env_vars": {"RANK": "0"}}})
    first = build(pool.get_placement_groups()[0], 0)
    second = build(sharing_with=first)
    pids = ray.get([first.pid.remote(), second.pid.remote()], timeout=60)
    assert len(set(pids)) == 2
    pool.release()
    ray.kill(second)
