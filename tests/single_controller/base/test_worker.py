# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a worker knows about itself."""

import os

import pytest

from verl.errors import ConfigError
from verl.single_controller.base import ClassWithInitArgs, ResourcePool, Worker
from verl.single_controller.base.worker_group import check_workers_alive
from verl.single_controller.local import LocalWorkerGroup


def test_rank_facts_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1234")
    worker = Worker()
    assert (worker.rank, worker.world_size) == (3, 8)
    assert worker.get_master_addr_port() == ("127.0.0.1", "1234")
    address, port = worker.get_availale_master_addr_port()
    assert address == "127.0.0.1"
    assert 0 < int(port) < 65536
    assert {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"} <= set(Worker.env_keys())


def test_visible_devices_are_settled_before_the_worker_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "rocm")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,3")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    from verl.platform import current_platform

    current_platform.cache_clear()
    try:
        worker = Worker()
        assert worker.get_cuda_visible_devices() == "2,3"
        assert "HIP_VISIBLE_DEVICES" not in os.environ
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
        with pytest.raises(ConfigError, match="HIP_VISIBLE_DEVICES"):
            Worker()
    finally:
        current_platform.cache_clear()
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)


def test_a_mesh_is_registered_once_and_can_be_taken_over() -> None:
    worker, stand_in = Worker(), Worker()
    worker._register_dispatch_collect_info("train", dp_rank=2, is_collect=True)
    with pytest.raises(ConfigError, match="registered already"):
        worker._register_dispatch_collect_info("train", dp_rank=2, is_collect=True)
    stand_in.set_dispatch_collect("train", **worker.get_dispatch_collect())
    assert stand_in._query_mesh("train") == (2, True)
    assert worker.query_collect_info("train") is True


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([(0, True), (0, True)], "exactly one rank that speaks"),
        ([(0, True), (1, False)], "exactly one rank that speaks"),
        ([(1, True), (0, True)], "not in the order"),
    ],
)
def test_meshes_that_would_lose_or_mix_rows_are_refused(places: list[tuple[int, bool]], message: str) -> None:
    class Placed(Worker):
        def __init__(self) -> None:
            super().__init__()
            self._register_dispatch_collect_info("m", *places[self.rank])

    group = LocalWorkerGroup(ResourcePool([2]), ClassWithInitArgs(Placed))
    with pytest.raises(ConfigError, match=message):
        group.mesh_info("m")
    group.shutdown()


def test_watching_ends_with_the_first_dead_worker() -> None:
    alive = {"a": 3, "b": 5}

    def is_alive(worker: str) -> bool:
        alive[worker] -= 1
        return alive[worker] > 0

    with pytest.raises(Exception, match="rank 0: a worker has died"):
        check_workers_alive(["a", "b"], is_alive, gap_time=0.001)


def test_a_local_rank_can_form_a_process_group() -> None:
    import torch.distributed as dist

    class Alone(Worker):
        def __init__(self) -> None:
            super().__init__()
            dist.init_process_group("gloo")

        def size(self) -> int:
            return dist.get_world_size()

        def leave(self) -> None:
            dist.destroy_process_group()

    group = LocalWorkerGroup(ResourcePool([1]), ClassWithInitArgs(Alone), deadline_s=30)
    assert group.call("size") == [1]
    group.call("leave")
    group.shutdown()
