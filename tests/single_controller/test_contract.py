# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The contract of a worker group, held by Ray actors and by threads of one process alike."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from ray import cloudpickle

from verl.errors import ConfigError, DataError, RewardError, WaitTimeout
from verl.protocol import DataProto, DataProtoFuture
from verl.single_controller.base.decorator import (
    Dispatch,
    Execute,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)
from verl.single_controller.base.worker import Worker
from verl.single_controller.base.worker_group import WorkerGroup

# Actors cannot import the test module: its classes travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Adder(Worker):
    """Two data-parallel ranks of two tensor-parallel ranks each, when there are four ranks."""

    def __init__(self, amount: int, tensor_parallel: int = 1) -> None:
        super().__init__()
        self.amount = amount
        dp_rank, tp_rank = divmod(self.rank, tensor_parallel)
        self._register_dispatch_collect_info("train", dp_rank=dp_rank, is_collect=tp_rank == 0)

    @register(Dispatch.ONE_TO_ALL)
    def whoami(self, suffix: str = "") -> str:
        return f"{self.rank}/{self.world_size}{suffix}"

    @register(Dispatch.ALL_TO_ALL)
    def echo(self, value: Any) -> Any:
        return value

    @register(Dispatch.DP_COMPUTE)
    def scale(self, value: int, *, factor: int) -> int:
        return value * factor

    @register(Dispatch.RANK_ZERO)
    def first_only(self, values: list[int]) -> list[int]:
        return [*values, self.rank]

    @register(Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def speak(self, text: str) -> str:
        return f"{text} from {self.rank}"

    @register(Dispatch.DP_COMPUTE_PROTO)
    def add(self, data: DataProto, extra: int = 0) -> DataProto:
        data.batch["x"] += self.amount + extra
        data.meta_info["metrics"] = {"rows": len(data)}
        return data

    @register(make_nd_compute_dataproto_dispatch_fn("train"))
    def add_on_mesh(self, data: DataProto) -> DataProto:
        return self.add(data)

    @register(make_nd_compute_dataproto_dispatch_fn("nowhere"))
    def lost(self, data: DataProto) -> DataProto:
        return data

    @register(Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def add_later(self, data: DataProto) -> DataProto:
        return self.add(data)

    @register(Dispatch.ONE_TO_ALL, blocking=False)
    def whoami_later(self) -> str:
        return self.whoami()

    @register(Dispatch.DP_COMPUTE_METRIC)
    def count(self, data: DataProto) -> int:
        return len(data)

    @register(Dispatch.DP_COMPUTE_PROTO)
    def update(self, data: DataProto) -> None:
        return None

    @register(Dispatch.DIRECT_ROLLOUT_METHOD)
    def generate(self) -> None:
        return None

    @register(Dispatch.ONE_TO_ALL)
    def fail_on(self, rank: int) -> None:
        if self.rank == rank:
            raise RewardError("this is rank's own fault", where=f"rank {rank}")
        time.sleep(3)

    @register(Dispatch.ONE_TO_ALL)
    def sleep_on(self, rank: int, seconds: float) -> None:
        if self.rank == rank:
            time.sleep(seconds)

    def not_decorated(self, value: int) -> int:
        return value + self.rank


def build(kind: str, ranks: int, *args: Any, **kwargs: Any) -> WorkerGroup:
    if kind == "local":
        from verl.single_controller.base import ClassWithInitArgs, ResourcePool
        from verl.single_controller.local import LocalWorkerGroup

        return LocalWorkerGroup(ResourcePool([ranks]), ClassWithInitArgs(Adder, *args, **kwargs), deadline_s=60)
    import ray

    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

    pool = RayResourcePool([ranks], max_colocate_count=1)
    return RayWorkerGroup(pool, RayClassWithInitArgs(ray.remote(Adder), *args, **kwargs), deadline_s=60)


def end(group: WorkerGroup) -> None:
    group.shutdown()
    if hasattr(group.resource_pool, "release"):
        group.resource_pool.release()


@pytest.fixture(scope="module", params=["local", "ray"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return request.param


@pytest.fixture(scope="module")
def group(kind: str) -> Iterator[WorkerGroup]:
    group = build(kind, 2, 10)
    yield group
    end(group)


def rows(count: int) -> DataProto:
    return DataProto.from_dict({"x": torch.arange(count)}, {"uid": [f"u{row}" for row in range(count)]})


def test_one_to_all_gives_every_rank_the_same_arguments(group: WorkerGroup) -> None:
    assert group.whoami() == ["0/2", "1/2"]
    assert group.whoami(suffix="!") == ["0/2!", "1/2!"]


def test_all_to_all_spreads_lists_of_one_entry_per_rank_and_repeats_anything_else(group: WorkerGroup) -> None:
    assert group.echo(["a", "b"]) == ["a", "b"]
    assert group.echo("a") == ["a", "a"]
    assert group.echo([1, 2, 3]) == [[1, 2, 3], [1, 2, 3]]


def test_dp_compute_wants_one_entry_per_rank(group: WorkerGroup) -> None:
    assert group.scale([1, 2], factor=[10, 20]) == [10, 40]
    with pytest.raises(DataError, match="one entry per rank"):
        group.scale([1, 2, 3], factor=[1, 1])


def test_rank_zero_runs_on_rank_zero_with_the_arguments_as_they_are(group: WorkerGroup) -> None:
    assert group.first_only([7, 8]) == [7, 8, 0]
    assert group.speak("hello") == "hello from 0"


def test_a_batch_is_split_computed_and_joined_in_order(group: WorkerGroup) -> None:
    data = rows(6)
    out = group.add(data, extra=1)
    assert out.batch["x"].tolist() == [11, 12, 13, 14, 15, 16]
    assert out.non_tensor_batch["uid"].tolist() == [f"u{row}" for row in range(6)]
    assert out.meta_info["metrics"] == {"rows": [3, 3]}
    assert data.batch["x"].tolist() == [0, 1, 2, 3, 4, 5], "a worker changes its own copy"


def test_an_uneven_batch_is_refused_in_a_sentence(group: WorkerGroup) -> None:
    with pytest.raises(DataError, match=r"5 rows for 2 ranks.*pad_dataproto_to_divisor"):
        group.add(rows(5))


def test_an_uneven_batch_with_padding_on_comes_back_with_its_own_rows(group: WorkerGroup) -> None:
    data = DataProto.from_dict({"x": torch.arange(5)}, auto_padding=True)
    assert group.add(data).batch["x"].tolist() == [10, 11, 12, 13, 14]
    assert group.add_on_mesh(data).batch["x"].tolist() == [10, 11, 12, 13, 14]
    assert group.add_later(data).get().batch["x"].tolist() == [10, 11, 12, 13, 14]


def test_an_output_per_rank_and_no_output_at_all(group: WorkerGroup) -> None:
    assert group.count(rows(4)) == [2, 2]
    assert group.update(rows(4)) is None


def test_calls_that_do_not_block_return_futures(group: WorkerGroup) -> None:
    future = group.add_later(rows(4))
    assert isinstance(future, DataProtoFuture)
    assert future.get().batch["x"].tolist() == [10, 11, 12, 13]
    handles = group.whoami_later()
    assert all(group.is_handle(handle) for handle in handles)
    assert group.fetcher()(handles) == ["0/2", "1/2"]


def test_a_future_is_an_argument_like_a_batch(group: WorkerGroup) -> None:
    twice = group.add_later(group.add_later(rows(4)))
    assert twice.get().batch["x"].tolist() == [20, 21, 22, 23]
    assert group.add_on_mesh(group.add_later(rows(4))).batch["x"].tolist() == [20, 21, 22, 23]


def test_an_unknown_mesh_is_answered_with_the_known_ones(group: WorkerGroup) -> None:
    with pytest.raises(ConfigError, match=r"not registered this mesh.*nowhere.*\['train'\]"):
        group.lost(rows(2))


def test_a_tensordict_and_a_direct_rollout_method_are_refused(group: WorkerGroup) -> None:
    with pytest.raises(DataError, match="from_tensordict"):
        group.add(rows(2).to_tensordict())
    with pytest.raises(ConfigError, match="rollout server"):
        group.generate()


def test_methods_by_name(group: WorkerGroup) -> None:
    assert group.execute_all_sync("not_decorated", 5) == [5, 6]
    assert group.execute_all_sync("not_decorated", [5, 7]) == [5, 8]
    assert group.execute_rank_zero_sync("not_decorated", 5) == 5
    assert group.fetcher()([group.execute_rank_zero("not_decorated", 1)]) == [1]
    assert group.call("not_decorated", 1) == [1, 2]


def test_functions_run_on_the_ranks(group: WorkerGroup) -> None:
    def shifted(worker: Adder, data: DataProto) -> DataProto:
        data.batch["x"] += 100 * worker.rank
        return data

    assert group.execute_with_func_generator(shifted, rows(4)).batch["x"].tolist() == [0, 1, 102, 103]
    assert group.execute_func_rank_zero(sum, [1, 2, 3]) == 6


def test_the_first_rank_that_fails_raises_at_once_with_its_type_and_place(group: WorkerGroup) -> None:
    start_s = time.monotonic()
    with pytest.raises(RewardError, match="own fault") as caught:
        group.fail_on(1)
    assert time.monotonic() - start_s < 2.5, "rank 0 is still asleep"
    assert caught.value.where == "rank 1"
    assert any("rank 1 (pid " in note for note in caught.value.__notes__)


def test_a_silent_rank_is_named_when_the_deadline_ends(group: WorkerGroup) -> None:
    group.whoami()  # no rank is busy with an earlier test
    with pytest.raises(WaitTimeout, match=r"waited 0\.5 s for sleep_on from \w+ rank 1 \(pid \d+ on [^)]+\)"):
        group.call("sleep_on", 1, 2.0, deadline_s=0.5)


def test_asynchronous_calls_leave_the_loop_running(group: WorkerGroup) -> None:
    async def run() -> tuple[Any, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        heart = asyncio.create_task(tick())
        await group.call_async("sleep_on", 0, 0.5)
        beats = ticks
        out = await group.call_async("add_on_mesh", rows(4))
        assert (await group.call_async("not_decorated", 1)) == [1, 2]
        heart.cancel()
        return out, beats

    out, beats = asyncio.run(run())
    assert out.batch["x"].tolist() == [10, 11, 12, 13]
    assert beats > 5


def test_asynchronous_calls_raise_failures_at_once_and_name_the_silent(group: WorkerGroup) -> None:
    async def run() -> None:
        start_s = time.monotonic()
        with pytest.raises(RewardError) as caught:
            await group.call_async("fail_on", 0)
        assert time.monotonic() - start_s < 2.5
        assert any("rank 0 (pid " in note for note in caught.value.__notes__)
        with pytest.raises(WaitTimeout, match=r"for sleep_on from .* rank 0 "):
            await group.call_async("sleep_on", 0, 5.0, deadline_s=0.5)

    asyncio.run(run())


def test_ranks_of_one_data_parallel_rank_get_the_same_share_and_one_of_them_answers() -> None:
    group = build("local", 4, 10, tensor_parallel=2)
    out = group.add_on_mesh(rows(6))
    assert out.batch["x"].tolist() == [10, 11, 12, 13, 14, 15]
    assert out.meta_info["metrics"] == {"rows": [3, 3]}
    assert group.mesh_info("train").dp_ranks == (0, 0, 1, 1)
    end(group)


def test_a_local_group_leaves_the_environment_as_it_was() -> None:
    before = dict(os.environ)
    end(build("local", 2, 0))
    assert dict(os.environ) == before
