# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which node and which devices the server of a replica gets, and the environment it starts in."""

import os
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl.errors import ConfigError, UnsupportedError
from verl.launch_info import LaunchInfo
from verl.platform import current_platform
from verl.waits import bounded
from verl.workers.rollout.replica import RolloutReplica
from verl.workers.rollout.server import RolloutServer
from verl.workers.rollout.utils import gather_or_cancel

# Loading tens of gigabytes and compiling graphs takes many minutes; a dead server is noticed at once all the same.
LAUNCH_DEADLINE_S = 1800.0
_PLACEMENT_DEADLINE_S = 120.0


class WorkerPlace(NamedTuple):
    """Where a worker of the replica sits."""

    node_id: str
    node_ip: str
    device_ids: tuple[str, ...]


def where_am_i(worker: Any, resource: str) -> WorkerPlace:
    """Run inside a worker actor: its node, and the ids that Ray gave it of `resource` ("GPU", "NPU", or "")."""
    context = ray.get_runtime_context()
    ids = context.get_accelerator_ids().get(resource, ()) if resource else ()
    return WorkerPlace(context.get_node_id(), ray.util.get_node_ip_address(), tuple(str(i) for i in ids))


class OneNodeReplica(RolloutReplica):
    """A replica with one server, on the node of the workers that hold its devices."""

    server_class: ClassVar[type[RolloutServer]]

    def engine_environment(self) -> dict[str, str]:
        """What the engine needs in the environment before it is imported."""
        return {}

    async def launch_servers(self) -> None:
        """Start the server beside its workers, or on this node where it has none."""
        places = await self._places()
        if len({place.node_id for place in places}) > 1:
            raise UnsupportedError(
                "a replica over several nodes is left out",
                where="actor_rollout_ref.rollout.tensor_model_parallel_size",
                got=f"{self.world_size} ranks with {self.gpus_per_node} devices a node",
                remedy="keep tensor x pipeline parallel size within a node, and use more replicas",
            )
        self.servers = [self._create(places)]
        await self.call("launch_server", deadline_s=LAUNCH_DEADLINE_S)
        host, port = await self.call("get_server_address", deadline_s=_PLACEMENT_DEADLINE_S)
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _places(self) -> list[WorkerPlace]:
        if not self.workers:
            return [where_am_i(None, "")]
        resource = current_platform().ray_resource if self.rollout_worker_use_gpu() else ""
        asks: list[Any] = [worker.__ray_call__.remote(where_am_i, resource) for worker in self.workers]
        places: list[WorkerPlace] = await gather_or_cancel(
            *(
                bounded(
                    ask,
                    what="its place",
                    whom=f"worker {rank} of {self.server_id}",
                    deadline_s=_PLACEMENT_DEADLINE_S,
                )
                for rank, ask in enumerate(asks)
            )
        )
        if resource and not all(place.device_ids for place in places):
            raise ConfigError(
                f"a worker of {self.server_id} holds no device", got=places, expected=f"one {resource} each"
            )
        return places

    def _create(self, places: Sequence[WorkerPlace]) -> ActorHandle:
        # The name by which `ServerAdapter` finds it: engine, replica, node.
        name = f"{self.config.name}_server{self._kind()}_{self.replica_rank}_0{self.name_suffix}"
        options = {
            "name": name,
            "num_cpus": 0,
            "max_concurrency": self.max_concurrency,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=places[0].node_id, soft=False),
            "runtime_env": {"env_vars": self.server_environment()},
        }
        server: Any = (
            ray.remote(self.server_class)
            .options(**options)
            .remote(
                config=self.config,
                model_config=self.model_config,
                rollout_mode=self.rollout_mode,
                workers=self.workers,
                replica_rank=self.replica_rank,
                gpus_per_node=self.gpus_per_replica_node,
                cuda_visible_devices=",".join(device for place in places for device in place.device_ids),
                address=places[0].node_ip,
                log_file=f"{self.log_dir}/{name}.log" if self.log_dir else None,
            )
        )
        return server

    def server_environment(self) -> dict[str, str]:
        """Environment of the server actor; the engine's processes inherit it, and what the user exported wins."""
        info = LaunchInfo.from_env()
        platform = current_platform()
        return {
            **LaunchInfo(info.job_id, info.run_dir, self.replica_rank).to_env(),
            **{name: os.environ.get(name, value) for name, value in platform.rollout_env().items()},
            **self.engine_environment(),
            # The server sets the devices of its workers itself: Ray gives it none and must not hide them.
            **platform.server_actor_env(),
        }

    async def sleep(self) -> None:
        await self.call("wait_for_requests_to_drain")
        await self.call("sleep")
