# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The side of the rollout that lives in training processes: it hands weights to a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from verl.errors import UnsupportedError
from verl.registry import Registry
from verl.utils.import_utils import load_class_from_fqn

if TYPE_CHECKING:
    import torch

ROLLOUT_ADAPTERS: Registry[str] = Registry("rollout", key="actor_rollout_ref.rollout.name")
ROLLOUT_ADAPTERS.register("vllm")("verl.workers.rollout.vllm_rollout.vllm_rollout.ServerAdapter")
ROLLOUT_ADAPTERS.register("hf")("verl.workers.rollout.vllm_rollout.vllm_rollout.ServerAdapter")


def rollout_world_size(config: Any) -> int:
    """Ranks of one replica: tensor x data x pipeline parallel size."""
    keys = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
    size = 1
    for key in keys:
        size *= int(config.get(key) or 1)
    return size


class BaseRollout(ABC):
    """Client of one rollout replica, one per rank of the replica."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any | None = None, *args: Any, **kwargs: Any):
        self.config = config
        self.model_config = model_config
        self.device_mesh = device_mesh

    @abstractmethod
    async def resume(self, tags: list[str]) -> None:
        """Bring back what `release` gave up: "weights", "kv_cache"."""

    @abstractmethod
    async def release(self) -> None:
        """Give up the device memory of weights and cache."""

    @abstractmethod
    async def update_weights(self, weights: Generator[tuple[str, torch.Tensor], None, None], **kwargs: Any) -> Any:
        """Hand named full tensors over; `global_steps` is their policy version."""

    def generate_sequences(self, prompts: Any) -> Any:
        raise UnsupportedError(
            f"{type(self).__name__} does not generate in the training process",
            remedy="generate through LLMServerClient or an agent loop",
        )


def get_rollout_class(rollout_name: str, mode: str = "async") -> type[BaseRollout]:
    """The adapter class registered under `rollout_name`; only the server ("async") mode exists."""
    if mode != "async":
        raise UnsupportedError(
            "rollout inside the training process is gone",
            where="actor_rollout_ref.rollout.mode",
            got=mode,
            expected="'async'",
        )
    return load_class_from_fqn(ROLLOUT_ADAPTERS.get(rollout_name), "rollout adapter")
