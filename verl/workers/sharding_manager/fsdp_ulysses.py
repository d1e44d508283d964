# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A data-parallel worker whose ranks share sequences: every rank of a group needs the rows of the whole group."""

from types import TracebackType

from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from verl.protocol import DataProto, all_gather_data_proto
from verl.utils.ulysses import get_ulysses_sequence_parallel_group, set_ulysses_sequence_parallel_group

__all__ = ["FSDPUlyssesShardingManager"]


class FSDPUlyssesShardingManager:
    """Inside the block `verl.utils.ulysses` uses the `sp` dimension of `device_mesh`; without a mesh nothing happens.

    `with manager: data = manager.preprocess_data(data); …; out = manager.postprocess_data(out)`
    """

    def __init__(self, device_mesh: DeviceMesh | None) -> None:
        self.device_mesh = device_mesh
        self._before: ProcessGroup | None = None

    def __enter__(self) -> None:
        if self.device_mesh is not None:
            # Another model in this process may share its sequences in another way.
            self._before = get_ulysses_sequence_parallel_group()
            set_ulysses_sequence_parallel_group(self.device_mesh["sp"].get_group())

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.device_mesh is not None:
            set_ulysses_sequence_parallel_group(self._before)

    def preprocess_data(self, data: DataProto) -> DataProto:
        """The rows of all ranks that share sequences, in rank order, in place."""
        if self.device_mesh is not None:
            all_gather_data_proto(data, self.device_mesh["sp"].get_group())
        return data

    def postprocess_data(self, data: DataProto) -> DataProto:
        """This rank's rows of what `preprocess_data` joined."""
        if self.device_mesh is None:
            return data
        mesh = self.device_mesh["sp"]
        return data.chunk(chunks=mesh.size())[mesh.get_local_rank()]
