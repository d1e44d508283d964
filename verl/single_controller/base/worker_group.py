# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`WorkerGroup`: many ranks behind one object; calls are dispatched, awaited with a deadline and collected.

A concrete group (Ray actors, or threads of one process) supplies how to send a call to a rank and how to wait.
"""

import asyncio
import copy
import functools
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from verl.errors import ConfigError, PeerLost
from verl.protocol import DataProto, DataProtoFuture, unpad_dataproto
from verl.single_controller.base.class_with_init_args import ClassWithInitArgs
from verl.single_controller.base.decorator import (
    MAGIC_ATTR,
    PADDING_KEY,
    Dispatch,
    Execute,
    dispatch_all_to_all,
    get_predefined_execute_fn,
    resolve_dispatch,
)
from verl.single_controller.base.resource_pool import ResourcePool

__all__ = ["ClassWithInitArgs", "MeshInfo", "Peer", "RankCall", "ResourcePool", "WorkerGroup", "check_workers_alive"]

logger = logging.getLogger(__name__)

# verl's default nccl_timeout: a collective that hangs on the ranks fails before the driver gives up.
DEFAULT_DEADLINE_S = 600.0

_UNREGISTERED = {"dispatch_mode": Dispatch.ONE_TO_ALL, "execute_mode": Execute.ALL, "blocking": True}


@dataclass(frozen=True)
class Peer:
    """Who a call went to; where its process runs is known once it has said so."""

    role: str
    rank: int
    pid: int | None = None
    node: str | None = None

    def __str__(self) -> str:
        place = "" if self.pid is None else f" (pid {self.pid} on {self.node})"
        return f"{self.role} rank {self.rank}{place}"


@dataclass(frozen=True)
class MeshInfo:
    """For each rank, the share of a batch it gets, and whether it speaks for that share."""

    dp_ranks: tuple[int, ...]
    collects: tuple[bool, ...]


@dataclass(frozen=True)
class RankCall:
    """One rank's part of a call."""

    rank: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def check_workers_alive(workers: list, is_alive: Callable[[Any], bool], gap_time: float = 1) -> None:
    """Return once a worker is not alive, looking every `gap_time` seconds; raises PeerLost with its number."""
    while True:
        for rank, worker in enumerate(workers):
            if not is_alive(worker):
                raise PeerLost("a worker has died", where=f"rank {rank}", got=repr(worker))
        time.sleep(gap_time)


class WorkerGroup(ABC):
    """The ranks of one role.

    Decorated methods of the worker class are methods of the group. They block at most `deadline_s` seconds, then
    raise WaitTimeout with the ranks that did not answer; a rank that dies raises PeerLost, an exception on a rank is
    raised here as soon as it is known, whatever the other ranks do.
    """

    def __init__(
        self, resource_pool: ResourcePool | None = None, *, role: str = "worker", deadline_s: float | None = None
    ) -> None:
        self.resource_pool = resource_pool
        self.role = role
        self.deadline_s = DEFAULT_DEADLINE_S if deadline_s is None else float(deadline_s)
        self._modes: dict[str, dict[str, Any]] = {}
        self._meshes: dict[str, MeshInfo] = {}
        self._fused_role: str | None = None

    # ---- what a concrete group supplies -------------------------------------------------------------------------

    @property
    @abstractmethod
    def world_size(self) -> int:
        """Number of ranks."""

    @abstractmethod
    def _submit(self, method_name: str, calls: Sequence[RankCall]) -> list[Any]:
        """Send the calls and return one handle each, without waiting."""

    @abstractmethod
    def _wait(self, handles: Sequence[Any], what: str, deadline_s: float) -> list[Any]:
        """The values behind the handles, in order."""

    @abstractmethod
    async def _wait_async(self, handles: Sequence[Any], what: str, deadline_s: float) -> list[Any]:
        """As `_wait`, without blocking the event loop."""

    @abstractmethod
    def is_handle(self, value: Any) -> bool:
        """Whether the value is a handle of this kind of group."""

    @abstractmethod
    def fetcher(self) -> Callable[[list[Any]], list[Any]]:
        """Handles to values, for futures; must survive a trip to a worker where handles do."""

    @abstractmethod
    def dead_peers(self) -> list[Peer]:
        """Ranks known to have died, without asking them."""

    # ---- calls --------------------------------------------------------------------------------------------------

    def _bind_worker_method(self, worker_cls: type) -> list[str]:
        """Make each decorated method of `worker_cls` a method of this group; returns their names."""
        for name in dir(worker_cls):
            modes = getattr(getattr(worker_cls, name, None), MAGIC_ATTR, None)
            if modes is None:
                continue
            self._modes[name] = modes
            # The mode may name another entry point of the group; subclasses of recipes override it.
            get_predefined_execute_fn(modes["execute_mode"])
            call = functools.partial(self._call_registered, name)
            setattr(self, name, functools.update_wrapper(call, getattr(worker_cls, name)))
        return list(self._modes)

    def _call_registered(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        handles, finish = self._dispatch(method_name, args, kwargs)
        if not self._modes[method_name]["blocking"]:
            return finish(handles)
        return finish(self._wait(handles, method_name, self.deadline_s))

    def call(self, method_name: str, *args: Any, deadline_s: float | None = None, **kwargs: Any) -> Any:
        """Dispatch, wait and collect; methods that are not decorated get the same arguments on every rank.

        `deadline_s` is this wait's own and does not reach the method.
        """
        handles, finish = self._dispatch(method_name, args, kwargs)
        return finish(self._wait(handles, method_name, deadline_s or self.deadline_s))

    async def call_async(self, method_name: str, *args: Any, deadline_s: float | None = None, **kwargs: Any) -> Any:
        """As `call`, without blocking the event loop; the first rank that fails raises at once."""
        mesh_name = resolve_dispatch(self._mode_of(method_name)["dispatch_mode"]).get("mesh_name")
        if mesh_name is not None:
            await self._load_mesh_async(mesh_name)
        # Serialising the arguments of a large batch takes milliseconds that the loop should not lose.
        handles, finish = await asyncio.to_thread(self._dispatch, method_name, args, kwargs)
        return finish(await self._wait_async(handles, method_name, deadline_s or self.deadline_s))

    def _mode_of(self, method_name: str) -> dict[str, Any]:
        return self._modes.get(method_name, _UNREGISTERED)

    def _dispatch(
        self, method_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        """Send one call; returns the handles and what makes the caller's value of their outputs."""
        mode = self._mode_of(method_name)
        pair = resolve_dispatch(mode["dispatch_mode"])
        args, kwargs = pair["dispatch_fn"](self, *args, **kwargs)
        padded_rows = kwargs.pop(PADDING_KEY, 0)
        rank_zero = mode["execute_mode"] == Execute.RANK_ZERO or mode["dispatch_mode"] == Dispatch.RANK_ZERO
        if rank_zero and pair["dispatch_fn"] is dispatch_all_to_all:
            calls = [RankCall(0, args, kwargs)]
        else:
            calls = self._rank_calls(args, kwargs)
        handles = self._submit(method_name, calls[:1] if rank_zero else calls)

        def finish(outputs: list[Any]) -> Any:
            value = pair["collect_fn"](self, outputs[0] if rank_zero else outputs)
            return _without_padding(value, padded_rows) if padded_rows else value

        return handles, finish

    def _rank_calls(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[RankCall]:
        """Per-rank calls: where every argument is a list with one entry per rank it is spread, else repeated."""
        size = self.world_size
        values = [*args, *kwargs.values()]
        if values and all(isinstance(value, list | tuple) and len(value) == size for value in values):
            return [
                RankCall(rank, tuple(arg[rank] for arg in args), {key: value[rank] for key, value in kwargs.items()})
                for rank in range(size)
            ]
        return [RankCall(rank, args, kwargs) for rank in range(size)]

    # ---- calls by name, as recipes make them --------------------------------------------------------------------

    def execute_rank_zero(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Handle of a call on rank 0."""
        return self.execute_rank_zero_async(method_name, *args, **kwargs)

    def execute_rank_zero_sync(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Value of a call on rank 0."""
        handle = self.execute_rank_zero_async(method_name, *args, **kwargs)
        return self._wait([handle], method_name, self.deadline_s)[0]

    def execute_rank_zero_async(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Handle of a call on rank 0."""
        return self._submit(method_name, [RankCall(0, args, kwargs)])[0]

    def execute_all(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Handles of a call on every rank."""
        return self.execute_all_async(method_name, *args, **kwargs)

    def execute_all_sync(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Values of a call on every rank."""
        return self._wait(self.execute_all_async(method_name, *args, **kwargs), method_name, self.deadline_s)

    def execute_all_async(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Handles of a call on every rank; arguments that are all lists with one entry per rank are spread."""
        return self._submit(method_name, self._rank_calls(args, kwargs))

    def _target(self, method_name: str, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """The method of the process, and its arguments, behind a method of this group's role."""
        if self._fused_role is None:
            return method_name, args
        return "invoke_role", (self._fused_role, method_name, *args)

    # ---- several roles in the same processes --------------------------------------------------------------------

    def spawn(self, prefix_set: Iterable[str]) -> dict[str, Self]:
        """One group per role of a colocated worker class; they share these processes."""
        return {prefix: self._view(prefix) for prefix in prefix_set}

    def spawn_fused(self, prefix_set: Iterable[str]) -> dict[str, Self]:
        """Another name of `spawn`."""
        return self.spawn(prefix_set)

    def fuse(self, prefix_set: Iterable[str]) -> None:
        """Make the group of each role an attribute of this one."""
        for prefix, group in self.spawn(prefix_set).items():
            setattr(self, prefix, group)

    def _view(self, role: str) -> Self:
        roles = self._role_classes()
        if role not in roles:
            raise ConfigError("no such role in these processes", got=role, expected=f"one of {list(roles)}")
        view = copy.copy(self)
        for name in self._modes:
            view.__dict__.pop(name, None)
        view._modes, view._meshes = {}, {}
        view.role = view._fused_role = role
        view._bind_worker_method(roles[role])
        return view

    @abstractmethod
    def _role_classes(self) -> dict[str, type]:
        """The worker class of each role, where the processes hold several."""

    # ---- places in meshes ---------------------------------------------------------------------------------------

    def mesh_info(self, mesh_name: str) -> MeshInfo:
        """The ranks' places in a mesh, asked from the workers once."""
        if mesh_name not in self._meshes:
            handles = self._submit("_query_mesh", [RankCall(rank, (mesh_name,), {}) for rank in range(self.world_size)])
            self._keep_mesh(mesh_name, self._wait(handles, "_query_mesh", self.deadline_s))
        return self._meshes[mesh_name]

    async def _load_mesh_async(self, mesh_name: str) -> None:
        if mesh_name not in self._meshes:
            handles = self._submit("_query_mesh", [RankCall(rank, (mesh_name,), {}) for rank in range(self.world_size)])
            self._keep_mesh(mesh_name, await self._wait_async(handles, "_query_mesh", self.deadline_s))

    def _keep_mesh(self, mesh_name: str, places: list[tuple[int, bool]]) -> None:
        info = MeshInfo(tuple(dp_rank for dp_rank, _ in places), tuple(collects for _, collects in places))
        speakers = [dp_rank for dp_rank, collects in places if collects]
        if sorted(speakers) != list(range(max(info.dp_ranks) + 1)):
            raise ConfigError(
                "each data-parallel rank of a mesh needs exactly one rank that speaks for it",
                where=f"mesh {mesh_name!r} of {self.role}",
                got=f"data-parallel ranks {info.dp_ranks}, speakers of {speakers}",
            )
        if speakers != sorted(speakers):
            raise ConfigError("the speaking ranks are not in the order of the batch", where=mesh_name, got=speakers)
        self._meshes[mesh_name] = info

    # ---- being alive --------------------------------------------------------------------------------------------

    def start_worker_aliveness_check(
        self, every_n_seconds: float = 1, on_lost: Callable[[PeerLost], None] | None = None
    ) -> None:
        """Watch the ranks from a thread; the first death is logged and given to `on_lost`, then the watch ends."""

        def watch() -> None:
            while not (dead := self.dead_peers()):
                time.sleep(every_n_seconds)
            lost = PeerLost("the worker has died", where=str(dead[0]))
            logger.error("%s", lost)
            if on_lost is not None:
                on_lost(lost)

        threading.Thread(target=watch, name=f"alive({self.role})", daemon=True).start()


def _without_padding(value: Any, padded_rows: int) -> Any:
    if isinstance(value, DataProto):
        return unpad_dataproto(value, padded_rows)
    if isinstance(value, DataProtoFuture):
        value.dispatch_fn = functools.partial(unpad_dataproto, pad_size=padded_rows)
    return value
