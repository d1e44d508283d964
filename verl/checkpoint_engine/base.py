# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The contract of every road that new weights can take from the trainer to the rollout."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, TypedDict, TypeVar

import torch

from verl.errors import UnsupportedError
from verl.registry import Registry
from verl.transport.stats import TransferStats
from verl.transport.streams import Weights
from verl.utils.import_utils import load_module

E = TypeVar("E", bound="type[CheckpointEngine]")
Kwargs = dict[str, list[Any]]

_LEFT_OUT = ("nixl", "mooncake", "kimi_ckpt_engine")


class TensorMeta(TypedDict):
    """Where a tensor lies in a bucket, in the form plugins know."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    offset: int


class CheckpointEngine(ABC):
    """One end of the road; every trainer rank and every rollout rank has one.

    An update is prepare (first time, or after the members changed or failed) → build_topology → init_process_group on
    every rank, then send_weights on all trainer ranks beside receive_weights on all rollout ranks. finalize lets go.
    """

    @abstractmethod
    def prepare(self) -> Any:
        """Make ready to connect; the master's answer tells the others where to go."""

    @classmethod
    @abstractmethod
    def build_topology(
        cls, trainer_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[Kwargs, Kwargs]:
        """Arguments of init_process_group: for trainer and for rollout, per name a list with one entry per rank.

        `metadata` holds what prepare returned on the trainer ranks, then on the rollout ranks.
        """

    @abstractmethod
    def init_process_group(self, *args: Any, **kwargs: Any) -> None:
        """Connect."""

    @abstractmethod
    def finalize(self) -> None:
        """Disconnect and free everything; may be called twice, and after a failure."""

    @abstractmethod
    async def send_weights(self, weights: Weights) -> TransferStats | None:
        """Send every (name, full tensor). All trainer ranks consume the stream whole, also when sending fails."""

    @abstractmethod
    def receive_weights(self) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """What was sent, in order; each tensor owns its memory."""


class CheckpointEngineWithCache(CheckpointEngine):
    """An engine that keeps the last weights, for a replica that joins later."""

    @abstractmethod
    def get_weights(self) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """The last weights received."""


class CheckpointEngineRegistry:
    """Engines by `rollout.checkpoint_engine.backend`."""

    _registry: Registry["type[CheckpointEngine]"] = Registry(
        "checkpoint engine", key="actor_rollout_ref.rollout.checkpoint_engine.backend"
    )

    @staticmethod
    def register(backend: str) -> Callable[[E], E]:
        return CheckpointEngineRegistry._registry.register(backend)  # type: ignore[return-value]

    @classmethod
    def get(cls, backend: str) -> "type[CheckpointEngine]":
        if backend in _LEFT_OUT and backend not in cls._registry:
            raise UnsupportedError(
                f"the checkpoint engine {backend!r} is left out",
                where=cls._registry.key,
                remedy="use nccl (RCCL on ROCm, gloo on CPU), shm on one host, or disk",
            )
        return cls._registry.get(backend)

    @classmethod
    def new(cls, backend: str, *args: Any, **kwargs: Any) -> CheckpointEngine:
        return cls.get(backend)(*args, **kwargs)


def new_engine(config: Any, *, is_master: bool) -> CheckpointEngine:
    """The engine that a `checkpoint_engine` section asks for, its own module imported first."""
    module = config.get("custom_backend_module")
    if module:
        importlib.import_module(module) if "/" not in module and not module.endswith(".py") else load_module(module)
    backend = config.backend
    options = dict((config.get("engine_kwargs") or {}).get(backend) or {})
    return CheckpointEngineRegistry.new(
        backend, bucket_size=int(config.update_weights_bucket_megabytes) << 20, is_master=is_master, **options
    )


def __getattr__(name: str) -> Any:
    # Recipes import these two from here; they live floors above, with Ray.
    homes = {"CheckpointEngineManager": "manager", "CheckpointEngineWorker": "worker"}
    if name == "ColocatedCheckpointEngine":
        homes[name] = "colocated"
    if name in homes:
        return getattr(importlib.import_module(f"verl.checkpoint_engine.{homes[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
