# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""How supervised rows are padded and put together."""

from enum import StrEnum
from typing import Any

import torch

from verl.errors import UnsupportedError

__all__ = ["DatasetPadMode", "SFTTensorCollator"]


class DatasetPadMode(StrEnum):
    """Where a row is padded."""

    RIGHT = "right"
    LEFT_RIGHT = "left_right"
    NO_PADDING = "no_padding"


class SFTTensorCollator:
    """Rows to a batch: stacked where they are padded, nested (jagged) tensors where they are not."""

    def __init__(self, pad_mode: DatasetPadMode = DatasetPadMode.LEFT_RIGHT) -> None:
        self.pad_mode = DatasetPadMode(pad_mode)

    def __call__(self, batch: list[dict[str, Any]]) -> dict[str, Any]:
        if self.pad_mode == DatasetPadMode.NO_PADDING:
            return self.collate_variable_batch(batch)
        return torch.utils.data.default_collate(batch)

    def collate_variable_batch(self, batch: list[dict[str, Any]]) -> dict[str, Any]:
        """One jagged tensor for each key."""
        columns = {}
        for key in batch[0]:
            values = [row[key] for row in batch]
            if not all(isinstance(value, torch.Tensor) for value in values):
                raise UnsupportedError(f"the column {key!r} is no tensor", remedy="leave it out of the row")
            columns[key] = torch.nested.as_nested_tensor(values, layout=torch.jagged)
        return columns
