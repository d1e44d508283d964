# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One copy of the model that generates: its devices, its workers, and its servers (one per node)."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayTaskError

from verl.errors import ConfigError, PeerLost, UnsupportedError
from verl.platform import current_platform
from verl.registry import Registry
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils.import_utils import load_class_from_fqn
from verl.waits import bounded
from verl.workers.rollout.base import rollout_world_size
from verl.workers.rollout.schemas import RolloutMode, TokenOutput

__all__ = [
    "CONTROL_METHOD_CONCURRENCY",
    "RolloutMode",
    "RolloutReplica",
    "RolloutReplicaRegistry",
    "TokenOutput",
    "get_rollout_replica_class",
    "rollout_world_size",
    "set_standalone_worker_cls",
]

logger = logging.getLogger(__name__)

# Calls beside generation that must get through to a saturated server: pause, health, weights.
CONTROL_METHOD_CONCURRENCY = 16
_MIN_CONCURRENCY = 1000
CONTROL_DEADLINE_S = 600.0
_SHUTDOWN_DEADLINE_S = 30.0

_standalone_worker_cls: type | None = None


def set_standalone_worker_cls(worker_cls: type) -> None:
    """The worker class of replicas with devices of their own; set by the checkpoint engine, a floor above."""
    global _standalone_worker_cls
    _standalone_worker_cls = worker_cls


class RolloutReplica(ABC):
    """Base of replicas. One of the `init_*` methods places it; then `servers[0]` answers requests."""

    def __init__(
        self,
        replica_rank: int,
        config: Any,
        model_config: Any,
        gpus_per_node: int = 8,
        is_reward_model: bool = False,
        is_teacher_model: bool = False,
        name_suffix: str = "",
        *,
        worker_cls: type | None = None,
        log_dir: str | None = None,
        device_share: float = 1.0,
    ) -> None:
        self.replica_rank = replica_rank
        self.config = config
        self.model_config = model_config
        self.world_size = rollout_world_size(config)
        self.gpus_per_node = gpus_per_node
        self.gpus_per_replica_node = min(gpus_per_node, self.world_size)
        self.nnodes = -(-self.world_size // self.gpus_per_replica_node)
        self.is_reward_model = is_reward_model
        self.is_teacher_model = is_teacher_model
        self.name_suffix = name_suffix
        self.log_dir = log_dir
        self.device_share = device_share
        self.rollout_mode: RolloutMode | None = None
        self.workers: list[ActorHandle] = []
        self.servers: list[ActorHandle] = []
        self.resource_pool: Any | None = None
        self._worker_cls = worker_cls
        self._owns_workers = False
        self._address: str | None = None

    # Placement

    async def init_hybrid(self, worker_group: Any) -> None:
        """In the devices of the training workers, which hand over weights and share memory by turns."""
        self.rollout_mode = RolloutMode.HYBRID
        first = self.replica_rank * self.world_size
        self.workers = list(worker_group.workers[first : first + self.world_size])
        if len(self.workers) != self.world_size:
            raise ConfigError(
                f"replica {self.replica_rank} does not fit the training workers",
                got=f"{len(worker_group.workers)} workers",
                expected=f"at least {first + self.world_size}",
            )
        await self.launch_servers()

    async def init_hybrid_colocated(self, worker_group: Any, resource_pool: Any) -> None:
        raise UnsupportedError("a second model inside the training workers is left out", remedy="use init_colocated")

    async def init_colocated(self, resource_pool: Any) -> None:
        """On the devices of an existing pool, in workers of its own (reward model)."""
        self.rollout_mode = RolloutMode.COLOCATED
        self.workers = await self._start_workers(resource_pool)
        await self.launch_servers()

    async def init_standalone(self) -> None:
        """On devices of its own: a pool, a worker on each device, and the servers.

        Without a worker class only the server is started, which takes no weight updates through a checkpoint engine.
        """
        self.rollout_mode = RolloutMode.STANDALONE
        if self._standalone_cls() is not None or current_platform().device_type != "cpu":
            prefix = f"rollout_pool_{self.replica_rank}{self._kind()}{self.name_suffix}"
            self.resource_pool = RayResourcePool(
                process_on_nodes=[self.gpus_per_replica_node] * self.nnodes,
                use_gpu=self.rollout_worker_use_gpu(),
                max_colocate_count=1,
                name_prefix=prefix,
                device_share=self.device_share,
            )
            self.workers = await self._start_workers(self.resource_pool)
        await self.launch_servers()

    def get_ray_class_with_init_args(self) -> Any:
        """The worker that sits on each device of the replica and receives weights for it."""
        worker_cls = self._standalone_cls()
        if worker_cls is None:
            raise ConfigError(
                "a replica with devices of its own needs a worker class",
                remedy="import verl.checkpoint_engine.worker, or pass worker_cls",
            )
        return RayClassWithInitArgs(
            cls=worker_cls,
            rollout_config=self.config,
            model_config=self.model_config,
            replica_rank=self.replica_rank,
        )

    def rollout_worker_use_gpu(self) -> bool:
        return current_platform().device_type != "cpu"

    def _standalone_cls(self) -> type | None:
        return self._worker_cls or _standalone_worker_cls

    async def _start_workers(self, pool: Any) -> list[ActorHandle]:
        prefix = f"rollout_{self.mode.value}_{self.replica_rank}{self._kind()}{self.name_suffix}"
        worker_cls = self.get_ray_class_with_init_args()
        self._owns_workers = True
        # Placement waits for the cluster with blocking calls of its own.
        group = await asyncio.to_thread(
            RayWorkerGroup, resource_pool=pool, ray_cls_with_init=worker_cls, bin_pack=False, name_prefix=prefix
        )
        return list(group.workers)

    def _kind(self) -> str:
        return "_reward" if self.is_reward_model else "_teacher" if self.is_teacher_model else ""

    @abstractmethod
    async def launch_servers(self) -> None:
        """Start one server on each node of the replica."""

    # Facts

    @property
    def mode(self) -> RolloutMode:
        """Where the engine lives; known once one of the `init_*` methods was called."""
        if self.rollout_mode is None:
            raise ConfigError(f"{self.server_id} has no place yet", remedy="await one of its init methods")
        return self.rollout_mode

    @property
    def server_id(self) -> str:
        """Name of the replica for balancers and error messages."""
        return f"{self.config.name}_server{self._kind()}_{self.replica_rank}{self.name_suffix}"

    @property
    def server_address(self) -> str:
        """`host:port` of the HTTP endpoint."""
        if self._address is None:
            raise ConfigError(f"{self.server_id} has not been launched", remedy="await one of its init methods")
        return self._address

    @property
    def server_handle(self) -> ActorHandle:
        """The server that takes requests: the one on the replica's first node."""
        if not self.servers:
            raise ConfigError(f"{self.server_id} has not been launched", remedy="await one of its init methods")
        return self.servers[0]

    @property
    def max_concurrency(self) -> int:
        """Calls that one server holds at a time: as many as the engine has slots, and room for control calls."""
        return max(_MIN_CONCURRENCY, int(self.config.get("max_num_seqs") or 0) + CONTROL_METHOD_CONCURRENCY)

    # Calls

    async def call(self, method: str, *args: Any, deadline_s: float = CONTROL_DEADLINE_S, **kwargs: Any) -> Any:
        """Call the first server; a dead one raises PeerLost, a silent one WaitTimeout, both with its name."""
        return await self._call(self.server_handle, method, args, kwargs, deadline_s)

    async def _call(self, server: ActorHandle, method: str, args: tuple, kwargs: dict, deadline_s: float) -> Any:
        try:
            ref = getattr(server, method).remote(*args, **kwargs)
            return await bounded(ref, what=method, whom=self.server_id, deadline_s=deadline_s)
        except RayActorError as error:
            raise PeerLost(f"{self.server_id} has died during {method}: {error}") from error
        except RayTaskError as error:
            raise error.cause from error

    async def wake_up(self, tags: list[str] | None = None) -> None:
        await self.call("wake_up", tags)

    async def sleep(self) -> None:
        await self.call("sleep")

    async def abort_all_requests(self) -> dict[str, Any]:
        return await self.call("abort_all_requests")

    async def resume_generation(self) -> None:
        await self.call("resume_generation")

    async def abort_request(self, request_id: str) -> dict[str, Any]:
        return await self.call("abort_request", request_id)

    async def clear_kv_cache(self) -> None:
        await self.call("clear_kv_cache")

    async def set_global_steps(self, global_steps: int) -> None:
        await self.call("set_global_steps", global_steps)

    async def health(self) -> dict[str, Any]:
        return await self.call("health", deadline_s=60.0)

    async def start_profile(self, **kwargs: Any) -> None:
        await self.call("start_profile", **kwargs)

    async def stop_profile(self) -> None:
        await self.call("stop_profile")

    async def shutdown(self) -> None:
        """Stop servers and the workers and pool that belong to the replica; a dead one is stopped already."""
        for server in self.servers:
            try:
                await self._call(server, "shutdown", (), {}, _SHUTDOWN_DEADLINE_S)
            except Exception as error:
                # Gone, hanging or broken: the kill below ends each, and what else belongs to the replica goes too.
                if not isinstance(error, PeerLost | TimeoutError):
                    logger.warning("%s did not shut down in order: %s: %s", self.server_id, type(error).__name__, error)
            ray.kill(server)
        self.servers = []
        if self._owns_workers:
            for worker in self.workers:
                ray.kill(worker)
        self.workers = []
        if self.resource_pool is not None:
            self.resource_pool.release()
            self.resource_pool = None


class RolloutReplicaRegistry:
    """Replica classes by `rollout.name`; a loader, because each engine is heavy to import."""

    _registry: Registry[Callable[[], type[RolloutReplica]]] = Registry(
        "rollout replica", key="actor_rollout_ref.rollout.name"
    )

    @classmethod
    def register(cls, name: str, loader: Callable[[], type[RolloutReplica]]) -> None:
        cls._registry.register(name)(loader)

    @classmethod
    def get(cls, name: str) -> type[RolloutReplica]:
        return cls._registry.get(name)()


def get_rollout_replica_class(rollout: str) -> type[RolloutReplica]:
    """The replica class of `rollout.name`."""
    return RolloutReplicaRegistry.get(rollout)


def _lazily(fqn: str) -> Callable[[], type[RolloutReplica]]:
    def load() -> type[RolloutReplica]:
        return load_class_from_fqn(fqn, "rollout replica")

    return load


RolloutReplicaRegistry.register("vllm", _lazily("verl.workers.rollout.vllm_rollout.vllm_async_server.vLLMReplica"))
RolloutReplicaRegistry.register("hf", _lazily("verl.workers.rollout.hf_rollout.HFReplica"))
