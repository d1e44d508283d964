# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Processes per node."""

import pytest

from verl.errors import ConfigError
from verl.single_controller.base import ResourcePool


def test_local_ranks_and_sizes_follow_the_nodes() -> None:
    pool = ResourcePool([2, 1])
    pool.add_node(3)
    assert pool.world_size == 6
    assert pool.local_rank_list() == [0, 1, 0, 0, 1, 2]
    assert pool.local_world_size_list() == [2, 2, 1, 3, 3, 3]
    assert pool() == pool.store == [2, 1, 3]


@pytest.mark.parametrize(("nodes", "colocated"), [([0], 1), ([2, -1], 1), ([1], 0)])
def test_pools_of_nothing_are_refused(nodes: list[int], colocated: int) -> None:
    with pytest.raises(ConfigError):
        ResourcePool(nodes, max_colocate_count=colocated)
