# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`RayWorkerGroup`: one Ray actor per rank, placed in a resource pool, with a common rendezvous."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import ray
from ray.core.generated.gcs_pb2 import ActorTableData  # type: ignore[attr-defined]  # made by protobuf at import
from ray.util.placement_group import PlacementGroup

from verl.errors import ConfigError
from verl.protocol import DataProto
from verl.single_controller.base.worker_group import Peer, RankCall, WorkerGroup
from verl.single_controller.ray import capacity
from verl.single_controller.ray.actor_class import RayClassWithInitArgs, slot_options
from verl.single_controller.ray.host import Seat
from verl.single_controller.ray.pool import RayResourcePool, sort_placement_group_by_node_ip
from verl.single_controller.ray.waiting import Waiter

# What the group decides for each rank; `worker_env` must not set it.
PROTECTED_ENV = frozenset(
    {"WORLD_SIZE", "RANK", "WG_PREFIX", "WG_BACKEND", "RAY_LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
)


class RayWorkerGroup(WorkerGroup):
    """The ranks of one role as Ray actors.

    With `resource_pool` the group starts its actors; with `worker_handles` (or `worker_names`) it stands for actors
    that are there already. `ray_wait_register_center_timeout` bounds the start, `deadline_s` each call.
    """

    resource_pool: RayResourcePool | None

    def __init__(
        self,
        resource_pool: RayResourcePool | None = None,
        ray_cls_with_init: RayClassWithInitArgs | None = None,
        bin_pack: bool = True,
        name_prefix: str | None = None,
        detached: bool = False,
        worker_names: Sequence[str] | None = None,
        worker_handles: Sequence[Any] | None = None,
        ray_wait_register_center_timeout: float = 300,
        *,
        device_name: str | None = None,
        worker_env: Mapping[str, str] | None = None,
        master_port_range: Sequence[int] | None = None,
        profile_steps: Sequence[int] | None = None,
        worker_nsight_options: Mapping[str, Any] | None = None,
        deadline_s: float | None = None,
        role: str | None = None,
    ) -> None:
        worker_cls = ray_cls_with_init.worker_cls if ray_cls_with_init is not None else None
        super().__init__(resource_pool, role=role or _role_name(worker_cls, name_prefix), deadline_s=deadline_s)
        self.name_prefix = name_prefix or uuid.uuid4().hex[:6]
        self.ray_cls_with_init = ray_cls_with_init
        self.device_name = device_name
        self.detached = detached
        self._start_deadline_s = float(ray_wait_register_center_timeout)
        self._master: tuple[str, str] | None = None
        self._workers: list[Any] = []
        self._worker_names: list[str] = list(worker_names or ())
        if worker_handles is not None or worker_names:
            self._adopt(worker_handles)
        elif resource_pool is not None and ray_cls_with_init is not None:
            ports = None if not master_port_range else (int(master_port_range[0]), int(master_port_range[-1]))
            runtime_env = {"env_vars": _checked_env(worker_env)} if worker_env else {}
            if profile_steps and worker_nsight_options:
                # Ray starts each process under nsys; which steps it records the worker's profiler says.
                runtime_env["nsight"] = dict(worker_nsight_options)
            self._launch(bin_pack, runtime_env, ports)
        else:
            raise ConfigError("a worker group needs a resource pool and a worker class, or workers that exist")
        if worker_cls is not None:
            self._bind_worker_method(worker_cls)

    # ---- start --------------------------------------------------------------------------------------------------

    def _adopt(self, worker_handles: Sequence[Any] | None) -> None:
        handles = worker_handles if worker_handles is not None else map(ray.get_actor, self._worker_names)
        self._workers = list(handles)
        self._know({worker: None for worker in self._workers})

    def _launch(self, bin_pack: bool, runtime_env: dict[str, Any], ports: tuple[int, int] | None) -> None:
        slots = self._slots("STRICT_PACK" if bin_pack else "PACK")
        cls, pool = self.ray_cls_with_init, self.resource_pool
        share = 1 / pool.max_colocate_count
        device = capacity.device_resource(self.device_name) if pool.use_gpu else None
        for rank, (group, bundle_index) in enumerate(slots):
            name = f"{self.name_prefix}{cls.worker_cls.__name__}_{rank}_{uuid.uuid4().hex[:6]}"
            options = slot_options(group, bundle_index) | {"num_cpus": _cpu_share(group, share), "name": name}
            if runtime_env:
                options["runtime_env"] = runtime_env
            if self.detached:
                options["lifetime"] = "detached"
            self._workers.append(cls.launch(options, device, _in_rays_steps(pool.device_share * share)))
            self._worker_names.append(name)
        self._know({worker: None for worker in self._workers})
        self._rendezvous(ports, device)

    def _slots(self, strategy: str) -> list[tuple[PlacementGroup, int]]:
        """(placement group, bundle) of each rank, in the order of the nodes' addresses."""
        pool = self.resource_pool
        groups = sort_placement_group_by_node_ip(pool.get_placement_groups(strategy, device_name=self.device_name))
        slots = [(group, index) for group in groups for index in range(group.bundle_count)]
        start = getattr(pool, "start_bundle_index", 0)
        return slots[start : start + pool.world_size]

    def _rendezvous(self, ports: tuple[int, int] | None, device: str | None) -> None:
        """Ask every process where it is, let rank 0 choose the port, give all their environment, build the workers."""
        first = self._workers[0].verl_rendezvous.remote(ports)
        refs = [*(worker.verl_seat.remote() for worker in self._workers), first]
        *seats, self._master = self._waiter.wait(refs, "start of the process", self._start_deadline_s)
        self._know(dict(zip(self._workers, seats, strict=True)))
        envs = self._rank_envs(seats, has_device=device is not None)
        started = [worker.verl_start.remote(env, device) for worker, env in zip(self._workers, envs, strict=True)]
        self._waiter.wait(started, "__init__", self._start_deadline_s)

    def _rank_envs(self, seats: Sequence[Seat], has_device: bool) -> list[dict[str, str]]:
        on_node: dict[str, list[int]] = {}
        for rank, seat in enumerate(seats):
            on_node.setdefault(seat.node_id, []).append(rank)
        address, port = self._master
        envs = []
        for rank, seat in enumerate(seats):
            local_rank, local_size = on_node[seat.node_id].index(rank), len(on_node[seat.node_id])
            envs.append(
                {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(len(seats)),
                    # Ray shows a rank its own device only, which is then number 0.
                    "LOCAL_RANK": "0" if has_device else str(local_rank),
                    "LOCAL_WORLD_SIZE": "1" if has_device else str(local_size),
                    "RAY_LOCAL_RANK": str(local_rank),
                    "RAY_LOCAL_WORLD_SIZE": str(local_size),
                    "MASTER_ADDR": address,
                    "MASTER_PORT": port,
                    "WG_PREFIX": self.name_prefix,
                    "WG_BACKEND": "ray",
                }
            )
        return envs

    def _know(self, seats: dict[Any, Seat | None]) -> None:
        peers = {}
        for rank, (worker, seat) in enumerate(seats.items()):
            place = (seat.pid, f"{seat.hostname} {seat.address}") if seat else ()
            peers[worker._actor_id.hex()] = Peer(self.role, rank, *place)
        self._waiter = Waiter(peers, self.deadline_s)

    # ---- calls --------------------------------------------------------------------------------------------------

    @property
    def world_size(self) -> int:
        return len(self._workers)

    def _submit(self, method_name: str, calls: Sequence[RankCall]) -> list[ray.ObjectRef]:
        shared = _put_shared(calls)
        refs = []
        for call in calls:
            target, args = self._target(method_name, tuple(shared.get(id(value), value) for value in call.args))
            kwargs = {key: shared.get(id(value), value) for key, value in call.kwargs.items()}
            refs.append(getattr(self._workers[call.rank], target).remote(*args, **kwargs))
        return refs

    def _wait(self, handles: Sequence[ray.ObjectRef], what: str, deadline_s: float) -> list[Any]:
        return self._waiter.wait(handles, what, deadline_s)

    async def _wait_async(self, handles: Sequence[ray.ObjectRef], what: str, deadline_s: float) -> list[Any]:
        return await self._waiter.wait_async(handles, what, deadline_s)

    def is_handle(self, value: Any) -> bool:
        return isinstance(value, ray.ObjectRef)

    def fetcher(self) -> Waiter:
        return self._waiter

    def dead_peers(self) -> list[Peer]:
        # The state that the cluster pushes to this process; asking the actor would wait behind its current call.
        dead = [worker for worker in self._workers if worker._get_local_state() == ActorTableData.ActorState.DEAD]
        return [self._waiter.peers[worker._actor_id.hex()] for worker in dead]

    # ---- other groups of the same processes ---------------------------------------------------------------------

    @classmethod
    def from_detached(
        cls,
        name_prefix: str | None = None,
        worker_names: Sequence[str] | None = None,
        worker_handles: Sequence[Any] | None = None,
        ray_cls_with_init: RayClassWithInitArgs | None = None,
        **kwargs: Any,
    ) -> Self:
        """A group over actors that are there already."""
        return cls(
            ray_cls_with_init=ray_cls_with_init,
            name_prefix=name_prefix,
            worker_names=worker_names,
            worker_handles=worker_handles,
            **kwargs,
        )

    def _role_classes(self) -> dict[str, type]:
        return getattr(self.ray_cls_with_init, "role_classes", {})

    def _view(self, role: str) -> Self:
        view = super()._view(role)
        peers = {actor_id: replace(peer, role=role) for actor_id, peer in self._waiter.peers.items()}
        view._waiter = Waiter(peers, self.deadline_s)
        return view

    # ---- facts --------------------------------------------------------------------------------------------------

    @property
    def worker_names(self) -> list[str]:
        """Names of the actors, in rank order."""
        return self._worker_names

    @property
    def workers(self) -> list[Any]:
        """Handles of the actors, in rank order."""
        return self._workers

    @property
    def master_address(self) -> str | None:
        """Where rank 0 listens."""
        return None if self._master is None else self._master[0]

    @property
    def master_port(self) -> str | None:
        """The port that rank 0 listens on."""
        return None if self._master is None else self._master[1]

    def shutdown(self) -> None:
        """End the actors of this group; the slots stay with the pool."""
        for worker in self._workers:
            ray.kill(worker)


def _role_name(worker_cls: type | None, name_prefix: str | None) -> str:
    if name_prefix:
        return name_prefix.rstrip("_")
    return worker_cls.__name__ if worker_cls is not None else "worker"


def _checked_env(worker_env: Mapping[str, str]) -> dict[str, str]:
    clash = sorted(PROTECTED_ENV & set(worker_env))
    if clash:
        raise ConfigError("the worker group sets these variables itself", where="worker_env", got=clash)
    return dict(worker_env)


def _cpu_share(group: PlacementGroup, share: float) -> float:
    return _in_rays_steps(group.bundle_specs[0].get("CPU", 0) * share)


def _in_rays_steps(amount: float) -> float:
    """At most `amount`, in Ray's steps of 1e-4: rounded up, the parts of a slot would not fit it together."""
    return max(1e-4, int(amount * 1e4) / 1e4)


def _put_shared(calls: Sequence[RankCall]) -> dict[int, ray.ObjectRef]:
    """Batches that several ranks get, put into the object store once instead of once per rank."""
    counts: dict[int, int] = {}
    values: dict[int, Any] = {}
    for call in calls:
        for value in (*call.args, *call.kwargs.values()):
            if isinstance(value, DataProto):
                counts[id(value)] = counts.get(id(value), 0) + 1
                values[id(value)] = value
    return {key: ray.put(values[key]) for key, count in counts.items() if count > 1}
