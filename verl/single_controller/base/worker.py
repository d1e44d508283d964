# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`Worker`: base of everything that runs on a rank; knows its rank from the environment and its place in meshes."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verl.errors import ConfigError
from verl.platform import current_platform
from verl.single_controller.base.decorator import Dispatch, Execute, register
from verl.utils.net_utils import get_free_port


@dataclass(frozen=True)
class DistRankInfo:
    """This rank's place in each kind of parallelism."""

    tp_rank: int
    dp_rank: int
    pp_rank: int
    cp_rank: int


@dataclass(frozen=True)
class DistGlobalInfo:
    """The size of each kind of parallelism."""

    tp_size: int
    dp_size: int
    pp_size: int
    cp_size: int


class WorkerHelper:
    """What a worker can say about its host."""

    def get_available_master_addr_port(self) -> tuple[str, str]:
        """An address of this host as the group knows it, and a port free at the moment."""
        address = os.environ.get("MASTER_ADDR", "127.0.0.1")
        port, _ = get_free_port("0.0.0.0")
        return address, str(port)

    def get_availale_master_addr_port(self) -> tuple[str, str]:
        """Another spelling, which recipes use."""
        return self.get_available_master_addr_port()


class Worker(WorkerHelper):
    """One rank of a worker group.

    The worker group sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT before
    `__init__` runs. LOCAL_RANK is the ordinal of this rank's device among those it can see; the place on the node is
    RAY_LOCAL_RANK of RAY_LOCAL_WORLD_SIZE.
    """

    fused_worker_attr_name = "fused_worker_dict"

    def __init__(self, cuda_visible_devices: str | None = None) -> None:
        platform = current_platform()
        if cuda_visible_devices is None:
            platform.settle_visible_devices()
        else:
            platform.show_only(cuda_visible_devices)
        self._rank = int(os.environ.get("RANK", "0"))
        self._world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self._dispatch_dp_rank: dict[str, int] = {}
        self._collects: dict[str, bool] = {}

    @classmethod
    def env_keys(cls) -> list[str]:
        """Variables that a worker reads."""
        facts = ["WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"]
        return [*facts, current_platform().visible_devices_env]

    @property
    def world_size(self) -> int:
        """Ranks in the group."""
        return self._world_size

    @property
    def rank(self) -> int:
        """This rank."""
        return self._rank

    def get_master_addr_port(self) -> tuple[str, str]:
        """Where rank 0's store listens."""
        return os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]

    def get_cuda_visible_devices(self) -> str:
        """The visible-devices variable, or "not set"."""
        return os.environ.get(current_platform().visible_devices_env, "not set")

    def get_fused_worker_by_name(self, worker_name: str) -> "Worker | None":
        """The worker of another role in this process."""
        return getattr(self, self.fused_worker_attr_name, {}).get(worker_name)

    # ---- places in meshes -------------------------------------------------------------------------------------------

    def _register_dispatch_collect_info(self, mesh_name: str, dp_rank: int, is_collect: bool) -> None:
        """Say which share of a batch this rank gets in `mesh_name`, and whether it speaks for that share."""
        if mesh_name in self._dispatch_dp_rank:
            raise ConfigError("this mesh is registered already", where=f"rank {self.rank}", got=mesh_name)
        self._dispatch_dp_rank[mesh_name] = dp_rank
        self._collects[mesh_name] = is_collect

    def _query_mesh(self, mesh_name: str) -> tuple[int, bool]:
        """(data-parallel rank, speaks for it) in a registered mesh."""
        return self._query_dispatch_info(mesh_name), self._query_collect_info(mesh_name)

    def _query_dispatch_info(self, mesh_name: str) -> int:
        if mesh_name not in self._dispatch_dp_rank:
            raise ConfigError(
                "the worker has not registered this mesh",
                where=f"{type(self).__name__} rank {self.rank}",
                got=mesh_name,
                expected=f"one of {sorted(self._dispatch_dp_rank)}",
                remedy="call _register_dispatch_collect_info in init_model or __init__",
            )
        return self._dispatch_dp_rank[mesh_name]

    def _query_collect_info(self, mesh_name: str) -> bool:
        self._query_dispatch_info(mesh_name)
        return self._collects[mesh_name]

    def query_collect_info(self, mesh_name: str) -> bool:
        """Whether this rank speaks for its share in `mesh_name`."""
        return self._query_collect_info(mesh_name)

    def get_dispatch_collect(self) -> dict[str, dict[str, Any]]:
        """Both tables, as `set_dispatch_collect` of a worker that stands in for this one takes them."""
        return {"dispatch_dp_rank": dict(self._dispatch_dp_rank), "collect_dp_rank": dict(self._collects)}

    def set_dispatch_collect(
        self, mesh_name: str, dispatch_dp_rank: dict[str, int], collect_dp_rank: dict[str, bool]
    ) -> None:
        """Take over the place of another worker in `mesh_name`."""
        self._register_dispatch_collect_info(mesh_name, dispatch_dp_rank[mesh_name], collect_dp_rank[mesh_name])

    # ---- running functions ------------------------------------------------------------------------------------------

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO_WITH_FUNC)
    def execute_with_func_generator(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`func(worker, *args, **kwargs)` on each rank with its share of the batches."""
        return func(self, *args, **kwargs)

    @register(dispatch_mode=Dispatch.ALL_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def execute_func_rank_zero(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`func(*args, **kwargs)` on rank 0."""
        return func(*args, **kwargs)
