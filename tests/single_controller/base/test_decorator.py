# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Modes: registering one's own, and what is refused."""

import asyncio
import inspect
import pickle

import pytest
import torch

from verl.errors import ConfigError, DataError
from verl.protocol import DataProto, DataProtoFuture
from verl.single_controller.base import ClassWithInitArgs, ResourcePool, Worker
from verl.single_controller.base.decorator import (
    DISPATCH_MODE_FN_REGISTRY,
    MAGIC_ATTR,
    Dispatch,
    Execute,
    collect_nd_compute_dataproto,
    dispatch_nd_compute,
    dispatch_nd_compute_dataproto,
    get_predefined_execute_fn,
    register,
    register_dispatch_mode,
    update_dispatch_mode,
)
from verl.single_controller.local import LocalWorkerGroup


def test_the_built_in_names_are_there() -> None:
    assert set(Dispatch.names()) >= {
        "RANK_ZERO",
        "ONE_TO_ALL",
        "ALL_TO_ALL",
        "DP_COMPUTE",
        "DP_COMPUTE_PROTO",
        "DP_COMPUTE_PROTO_WITH_FUNC",
        "DP_COMPUTE_METRIC",
        "DIRECT_ROLLOUT_METHOD",
    }
    assert Execute.names() == ["ALL", "RANK_ZERO"]
    assert set(DISPATCH_MODE_FN_REGISTRY) == set(Dispatch.values())
    assert get_predefined_execute_fn(Execute.RANK_ZERO) == {"execute_fn_name": "execute_rank_zero"}


def test_a_mode_is_the_same_object_after_a_pickle() -> None:
    assert pickle.loads(pickle.dumps(Dispatch.ONE_TO_ALL)) is Dispatch.ONE_TO_ALL
    assert pickle.loads(pickle.dumps(Execute.ALL)) is Execute.ALL


def test_a_mode_of_ones_own_is_registered_used_updated_and_taken_away() -> None:
    def to_first(group, *args, **kwargs):
        return tuple([value, *[None] * (group.world_size - 1)] for value in args), kwargs

    register_dispatch_mode("only_first", to_first, lambda group, output: output[0])
    try:

        class Mine(Worker):
            @register(Dispatch.ONLY_FIRST)
            def get(self, value):
                return value

        group = LocalWorkerGroup(ResourcePool([2]), ClassWithInitArgs(Mine))
        assert group.get(5) == 5
        update_dispatch_mode(Dispatch.ONLY_FIRST, to_first, lambda group, output: output)
        assert group.get(5) == [5, None]
        with pytest.raises(ConfigError, match="already has this member"):
            register_dispatch_mode("ONLY_FIRST", to_first, to_first)
        group.shutdown()
    finally:
        DISPATCH_MODE_FN_REGISTRY.pop(Dispatch.remove("only_first"))
    assert "ONLY_FIRST" not in Dispatch.names()


def test_wrong_modes_are_refused_when_the_method_is_decorated() -> None:
    with pytest.raises(ConfigError, match="dispatch_fn and collect_fn"):
        register({"dispatch_fn": print})
    with pytest.raises(ConfigError, match="member of Execute"):
        register(Dispatch.ONE_TO_ALL, execute_mode="ALL")
    with pytest.raises(ConfigError, match="two functions"):
        update_dispatch_mode(Dispatch.ONE_TO_ALL, None, None)


def test_a_decorated_method_keeps_its_name_and_kind() -> None:
    class Mine:
        @register(Dispatch.ONE_TO_ALL, blocking=False)
        async def wait(self):
            """Docs."""
            return 1

    assert inspect.iscoroutinefunction(Mine.wait)
    assert Mine.wait.__doc__ == "Docs."
    assert getattr(Mine.wait, MAGIC_ATTR) == {
        "dispatch_mode": Dispatch.ONE_TO_ALL,
        "execute_mode": Execute.ALL,
        "blocking": False,
    }
    assert asyncio.run(Mine().wait()) == 1


def test_futures_among_the_arguments_become_batches_unless_the_method_wants_them() -> None:
    class Mine:
        @register()
        def take(self, data):
            return type(data)

        @register(materialize_futures=False)
        def take_future(self, data):
            return type(data)

        @register()
        async def take_async(self, data):
            return type(data)

    future = DataProtoFuture.concat([0], fetch=lambda handles: [DataProto.from_dict({"x": torch.zeros(1)})])
    assert Mine().take(future) is DataProto
    assert Mine().take_future(data=future) is DataProtoFuture
    assert asyncio.run(Mine().take_async(future)) is DataProto


class Group:
    world_size = 4

    def is_handle(self, value):
        return False


def test_mesh_dispatch_and_collect_by_hand() -> None:
    data = DataProto.from_dict({"x": torch.arange(4)})
    (shares,), kwargs = dispatch_nd_compute_dataproto([0, 0, 1, 1], 2, Group(), data, flag=True)
    assert [share.batch["x"].tolist() for share in shares] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert shares[0] is shares[1], "one object, so that it is sent once"
    assert kwargs == {"flag": [True] * 4}
    joined = collect_nd_compute_dataproto([True, False, False, True], Group(), shares)
    assert joined.batch["x"].tolist() == [0, 1, 2, 3]
    assert dispatch_nd_compute([1, 0, 1, 0], 2, Group(), ["a", "b"])[0] == (["b", "a", "b", "a"],)
    with pytest.raises(DataError, match="one entry per data-parallel rank"):
        dispatch_nd_compute([1, 0, 1, 0], 2, Group(), ["a"])


def test_an_output_that_is_not_a_batch_is_named() -> None:
    with pytest.raises(DataError, match=r"must return a DataProto.*int"):
        collect_nd_compute_dataproto([True] * 4, Group(), [1, 2, 3, 4])
