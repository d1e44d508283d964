# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Gathering over a process group; two ranks are in tests/single_controller/ray/test_group.py."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from verl.protocol import DataProto, all_gather_data_proto


@pytest.fixture
def group() -> Iterator[dist.ProcessGroup]:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_one_rank_keeps_its_rows(group: dist.ProcessGroup) -> None:
    data = DataProto.from_dict({"x": torch.arange(2)}, {"uid": ["a", "b"]}, {"t": 1})
    all_gather_data_proto(data, group)
    assert data.batch["x"].tolist() == [0, 1]
    assert data.non_tensor_batch["uid"].tolist() == ["a", "b"]
    assert data.meta_info == {"t": 1}
