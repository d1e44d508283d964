# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""How many processes on which node: plain arithmetic, no cluster."""

from collections.abc import Sequence
from typing import Any

from verl.errors import ConfigError


class ResourcePool:
    """Processes per node, in node order.

    `max_colocate_count` worker groups may share a slot, each actor with that fraction of the slot's device.
    """

    def __init__(
        self,
        process_on_nodes: Sequence[int] | None = None,
        max_colocate_count: int = 10,
        n_gpus_per_node: int = 8,
    ) -> None:
        counts = list(process_on_nodes or ())
        if any(not isinstance(count, int) or count < 1 for count in counts):
            raise ConfigError("each node of a resource pool needs at least one process", got=counts)
        if max_colocate_count < 1:
            raise ConfigError("max_colocate_count must be at least 1", got=max_colocate_count)
        self._store = counts
        self.max_colocate_count = max_colocate_count
        self.n_gpus_per_node = n_gpus_per_node

    def add_node(self, process_count: int) -> None:
        """One more node with `process_count` processes."""
        self._store.append(process_count)

    @property
    def world_size(self) -> int:
        """Processes on all nodes."""
        return sum(self._store)

    @property
    def store(self) -> list[int]:
        """Processes per node."""
        return self._store

    def __call__(self) -> Any:
        return self._store

    def local_world_size_list(self) -> list[int]:
        """For each rank, the number of processes on its node."""
        return [count for count in self._store for _ in range(count)]

    def local_rank_list(self) -> list[int]:
        """For each rank, its number on its node."""
        return [local_rank for count in self._store for local_rank in range(count)]
