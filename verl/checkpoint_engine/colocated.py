# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`naive`: trainer and rollout worker are one process, so the stream itself is handed over."""

from collections.abc import AsyncIterator
from typing import Any

import torch

from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry, Kwargs
from verl.errors import TransportError
from verl.transport.streams import Weights, as_async


@CheckpointEngineRegistry.register("naive")
class ColocatedCheckpointEngine(CheckpointEngine):
    """Nothing is connected, nothing is copied."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self.bucket_size = bucket_size
        self.is_master = is_master
        self._weights: Weights | None = None

    def prepare(self) -> None:
        return None

    @classmethod
    def build_topology(
        cls, trainer_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[Kwargs, Kwargs]:
        return {}, {}

    def init_process_group(self, **kwargs: Any) -> None:
        return None

    def finalize(self) -> None:
        self._weights = None

    async def send_weights(self, weights: Weights) -> None:
        self._weights = weights

    async def receive_weights(self) -> AsyncIterator[tuple[str, torch.Tensor]]:
        weights, self._weights = self._weights, None
        if weights is None:
            raise TransportError("no weights were sent", remedy="call send_weights before receive_weights")
        async for item in as_async(weights):
            yield item
