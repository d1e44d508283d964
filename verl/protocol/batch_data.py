# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`BatchData`: cutting and joining for code that carries either kind of batch."""

from typing import Any

from verl.errors import DataError
from verl.protocol.data_proto import DataProto
from verl.protocol.td import TensorDict
from verl.utils.tensordict_utils import chunk_tensordict, concat_tensordict


class BatchData:
    """A `TensorDict` or `DataProto` to be cut, or a list of them to be joined."""

    _CHUNKABLE_TYPES = (TensorDict, DataProto)
    _CONCATABLE_TYPES = (TensorDict, DataProto)

    def __init__(self, data: Any) -> None:
        self.data = data

    def is_chunkable(self) -> bool:
        """Whether `chunk` can cut it."""
        return isinstance(self.data, self._CHUNKABLE_TYPES)

    def is_concatable(self) -> bool:
        """Whether `concat` can join it: a list, not empty, of batches of one kind."""
        if not isinstance(self.data, list | tuple) or not self.data:
            return False
        return any(all(isinstance(part, kind) for part in self.data) for kind in self._CONCATABLE_TYPES)

    def chunk(self, chunks: int) -> list[Any]:
        """`chunks` batches of equal size, in order."""
        if not self.is_chunkable():
            raise DataError("not a batch that can be cut", got=type(self.data).__name__, expected=_names())
        return chunk_tensordict(self.data, chunks) if isinstance(self.data, TensorDict) else self.data.chunk(chunks)

    def concat(self) -> Any:
        """One batch with the rows of all."""
        if not self.is_concatable():
            raise DataError(
                "not batches that can be joined", got=f"{self.data!r:.80}", expected=f"a list of {_names()}"
            )
        first = self.data[0]
        return concat_tensordict(list(self.data)) if isinstance(first, TensorDict) else DataProto.concat(self.data)


def _names() -> str:
    return " or ".join(kind.__name__ for kind in BatchData._CHUNKABLE_TYPES)
