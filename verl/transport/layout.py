# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where each tensor's bytes lie in which bucket, and back: arithmetic, without sockets or shared memory."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from verl.errors import TransportError
from verl.transport.arena import staging_memory
from verl.transport.checksum import CorruptBytes, Fold, Running, new_checksum
from verl.transport.header import Segment, TensorSpec

ALIGN_BYTES = 16
"""Every segment starts at a multiple of the largest element (complex128), so that any dtype can view it in place."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_of(spec: TensorSpec) -> torch.dtype:
    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise TransportError("unknown dtype", where=spec.name, got=spec.dtype, expected="a torch dtype")
    return dtype


def spec_of(name: str, tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(name, dtype_name(tensor.dtype), tuple(tensor.shape))


def nbytes_of(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * dtype_of(spec).itemsize


def align(offset: int) -> int:
    return -(-offset // ALIGN_BYTES) * ALIGN_BYTES


def as_bytes(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in row-major order as flat uint8; a view where it is contiguous, else a copy."""
    if hasattr(tensor, "full_tensor"):
        raise TransportError("a sharded tensor cannot be sent", where=name, remedy="send tensor.full_tensor()")
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise TransportError(
            "only dense tensors with storage can be sent", where=name, got=f"{tensor.layout} on {tensor.device}"
        )
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8)


def from_bytes(spec: TensorSpec, data: torch.Tensor) -> torch.Tensor:
    """The tensor that `spec` describes as a view of `data` (uint8, exactly its bytes)."""
    return data.view(dtype_of(spec)).reshape(spec.shape)


def place(nbytes: int, used: int, capacity: int) -> Iterator[tuple[int, int, int, int]]:
    """Split `nbytes` over buckets of `capacity`, the first of which has `used` bytes taken.

    Yields (bucket after the current one, offset in it, offset in the tensor, length). A tensor that fits into
    an empty bucket is kept whole, so that its receiver can use it without another copy.
    """
    offset, bucket = align(used), 0
    if nbytes == 0:
        yield bucket, min(offset, capacity), 0, 0
        return
    if offset + nbytes > capacity and used > 0:
        offset, bucket = 0, 1
    done = 0
    while done < nbytes:
        length = min(nbytes - done, capacity - offset)
        yield bucket, offset, done, length
        done += length
        offset, bucket = 0, bucket + 1


@dataclass
class _Partial:
    spec: TensorSpec
    data: torch.Tensor
    filled: int
    checksum: Running


class Assembler:
    """Puts buckets back together, checking every byte.

    `add` copies: the bucket may be filled again when it returns, and every tensor has memory of its own.
    """

    def __init__(self, checksum: str, device: torch.device) -> None:
        self.fold = Fold()
        self._kind = checksum
        self._device = device
        self._partial: _Partial | None = None

    def add(self, payload: torch.Tensor, segments: list[Segment]) -> list[tuple[str, torch.Tensor]]:
        """Tensors completed by this bucket, in the order sent.

        Raises
        ------
        CorruptBytes
            names the tensor whose bytes do not have their checksum.
        TransportError
            a segment is out of order or out of bounds.
        """
        complete = []
        for segment in segments:
            data = payload[segment.offset : segment.offset + segment.nbytes]
            tensor = self._take(segment, data)
            if tensor is not None:
                complete.append((segment.spec.name, tensor))
        return complete

    def _take(self, segment: Segment, data: torch.Tensor) -> torch.Tensor | None:
        total = nbytes_of(segment.spec)
        self._check_order(segment, data, total)
        if self._partial is None:
            empty = staging_memory(total, self._device)
            self._partial = _Partial(segment.spec, empty, 0, new_checksum(self._kind))
        partial = self._partial
        own = partial.data[segment.tensor_offset : segment.tensor_offset + segment.nbytes]
        own.copy_(data)
        # Over the copy, which nobody else can write to any more.
        checksum = partial.checksum.update(own)
        if checksum != segment.checksum:
            raise CorruptBytes(
                "the bytes that arrived are not those that were sent",
                where=segment.where,
                got=f"checksum {checksum:016x}",
                expected=f"{segment.checksum:016x}",
            )
        partial.filled += segment.nbytes
        if partial.filled < total:
            return None
        self._partial = None
        self.fold.add(segment.spec, total, checksum)
        return from_bytes(segment.spec, partial.data)

    def _check_order(self, segment: Segment, data: torch.Tensor, total: int) -> None:
        partial = self._partial
        expected = partial.filled if partial else 0
        same = partial is None or partial.spec == segment.spec
        fits = data.numel() == segment.nbytes and segment.tensor_offset + segment.nbytes <= total
        if not (same and fits and segment.tensor_offset == expected):
            raise TransportError(
                "a segment is out of order or out of bounds",
                where=segment.where,
                got=f"offset {segment.tensor_offset}, {segment.nbytes} of {total} bytes",
                expected=f"offset {expected} of {partial.spec.name if partial else segment.spec.name}",
            )

    def finish(self) -> None:
        """Nothing may be left half arrived."""
        if self._partial is not None:
            raise TransportError("the transfer ended inside a tensor", where=self._partial.spec.name)
