# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a sampler named in `data.sampler` must be."""

from abc import abstractmethod
from collections.abc import Sized
from typing import Any

from torch.utils.data import Sampler

__all__ = ["AbstractCurriculumSampler", "AbstractSampler"]


class AbstractSampler(Sampler[int]):
    """A choice of row indices that knows the data configuration; it needs `__iter__` and `__len__`."""

    @abstractmethod
    def __init__(self, data_source: Sized, data_config: Any) -> None: ...


class AbstractCurriculumSampler(AbstractSampler):
    """A sampler that learns from each finished batch."""

    @abstractmethod
    def update(self, batch: Any) -> None:
        """Called with the `DataProto` of each training step, scores included."""
