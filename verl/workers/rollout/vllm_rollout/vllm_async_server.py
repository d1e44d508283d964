# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Placement of vLLM servers: which node, which devices, which environment. The server itself is in `vllm_server`."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl.errors import ConfigError
from verl.launch_info import LaunchInfo
from verl.platform import current_platform
from verl.waits import bounded
from verl.workers.rollout.replica import RolloutReplica
from verl.workers.rollout.utils import gather_or_cancel
from verl.workers.rollout.vllm_rollout.engine_args import EngineSettings, engine_environment, refuse_several_nodes
from verl.workers.rollout.vllm_rollout.vllm_server import vLLMHttpServer

__all__ = ["vLLMHttpServer", "vLLMReplica"]

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


class vLLMReplica(RolloutReplica):
    """A replica served by vLLM."""

    server_class: type = vLLMHttpServer

    async def launch_servers(self) -> None:
        """One server actor on the node of the workers that hold its devices."""
        refuse_several_nodes(self.nnodes)
        nodes = group_by_node(await self._places())
        if len(nodes) != self.nnodes:
            raise ConfigError(
                f"{self.server_id} spans other nodes than its size says",
                got=f"{len(nodes)} nodes",
                expected=f"{self.nnodes} ({self.world_size} ranks, {self.gpus_per_replica_node} a node)",
            )
        self.servers = [self._create(rank, places) for rank, places in enumerate(nodes)]
        launches = (self._launch(server) for server in self.servers)
        addresses = await gather_or_cancel(*launches)
        host, port = addresses[0]
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _places(self) -> list[WorkerPlace]:
        if not self.workers:
            return [where_am_i(None, "")]
        resource = current_platform().ray_resource if self.rollout_worker_use_gpu() else ""
        asks = [worker.__ray_call__.remote(where_am_i, resource) for worker in self.workers]
        return await gather_or_cancel(
            *(
                bounded(
                    ask, what="its place", whom=f"worker {rank} of {self.server_id}", deadline_s=_PLACEMENT_DEADLINE_S
                )
                for rank, ask in enumerate(asks)
            )
        )

    def _create(self, node_rank: int, places: Sequence[WorkerPlace]) -> ActorHandle:
        devices = ",".join(device for place in places for device in place.device_ids)
        options = {
            "name": f"vllm_server{self._kind()}_{self.replica_rank}_{node_rank}{self.name_suffix}",
            "num_cpus": 0,
            "max_concurrency": self.max_concurrency,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=places[0].node_id, soft=False),
            "runtime_env": {"env_vars": self.server_environment()},
        }
        log_name = f"{options['name']}.log"
        return (
            ray.remote(self.server_class)
            .options(**options)
            .remote(
                config=self.config,
                model_config=self.model_config,
                rollout_mode=self.rollout_mode,
                workers=self.workers,
                replica_rank=self.replica_rank,
                node_rank=node_rank,
                gpus_per_node=self.gpus_per_replica_node,
                nnodes=self.nnodes,
                cuda_visible_devices=devices,
                address=places[0].node_ip,
                log_file=f"{self.log_dir}/{log_name}" if self.log_dir else None,
            )
        )

    def server_environment(self) -> dict[str, str]:
        """Environment of the server actor; vLLM's processes inherit it."""
        info = LaunchInfo.from_env()
        platform = current_platform()
        settings = EngineSettings(self.replica_rank, self.rollout_mode, platform.device_type, platform.vendor)
        return {
            **LaunchInfo(info.job_id, info.run_dir, self.replica_rank).to_env(),
            **{name: os.environ.get(name, value) for name, value in platform.rollout_env().items()},
            **engine_environment(self.config, settings),
            # The server sets the devices of its workers itself: Ray gives it none and must not hide them.
            **platform.server_actor_env(),
            "NCCL_CUMEM_ENABLE": "0",
        }

    async def _launch(self, server: ActorHandle) -> tuple[str, int]:
        await self._call(server, "launch_server", (), {}, LAUNCH_DEADLINE_S)
        return await self._call(server, "get_server_address", (), {}, _PLACEMENT_DEADLINE_S)

    async def sleep(self) -> None:
        await self.call("wait_for_requests_to_drain")
        await self.call("sleep")


def group_by_node(places: Sequence[WorkerPlace]) -> list[list[WorkerPlace]]:
    """Workers of each node, nodes in the order of their first rank."""
    nodes: dict[str, list[WorkerPlace]] = {}
    for place in places:
        nodes.setdefault(place.node_id, []).append(place)
    return list(nodes.values())
