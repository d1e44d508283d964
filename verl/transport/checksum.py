# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Checksums of tensors: xxh3 for host memory, a position-weighted integer sum computed on the device elsewhere."""

from typing import Protocol

import msgspec
import torch
import xxhash

from verl.errors import TransportError
from verl.transport.header import TensorSpec

_MASK = (1 << 64) - 1
_PRIME = 0x9E3779B185EBCA87


class CorruptBytes(TransportError):
    """Bytes arrived otherwise than they were sent. Never retried: a machine that does this once cannot be trusted."""


class Running(Protocol):
    """A checksum of the bytes of one tensor, fed in order."""

    def update(self, data: torch.Tensor) -> int:
        """Add uint8 bytes; returns the checksum of everything so far."""
        ...


class HostChecksum:
    """xxh3-64."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_64()

    def update(self, data: torch.Tensor) -> int:
        if data.numel():
            self._state.update(data.numpy())  # type: ignore[arg-type]  # NumPy's stub: a Buffer from Python 3.12 on
        return self._state.intdigest()


class DeviceChecksum:
    """Sum of 64-bit words, each times its odd position, modulo 2^64; chained over calls.

    Integer arithmetic, so any device gives the same number; a swap, a shift or a flipped bit changes it.
    """

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: torch.Tensor) -> int:
        whole = data.numel() // 8 * 8
        total = data.numel()
        if whole:
            words = data[:whole].view(torch.int64)
            weights = torch.arange(words.numel(), device=data.device, dtype=torch.int64) * 2 + 1
            total += int((words * weights).sum().item())
        if whole < data.numel():
            tail = data[whole:].to(torch.int64)
            weights = torch.arange(tail.numel(), device=data.device, dtype=torch.int64) * 2 + 1
            total += int((tail * weights).sum().item()) * _PRIME
        self._value = (self._value * _PRIME + total) & _MASK
        return self._value


_KINDS: dict[str, type[HostChecksum] | type[DeviceChecksum]] = {"xxh3": HostChecksum, "sum64": DeviceChecksum}


def kind_for(device: torch.device) -> str:
    return "xxh3" if device.type == "cpu" else "sum64"


def new_checksum(kind: str) -> Running:
    if kind not in _KINDS:
        raise TransportError("unknown checksum", got=kind, expected=" or ".join(_KINDS))
    return _KINDS[kind]()


class Fold:
    """Digest of a transfer: names, dtypes and shapes (manifest) and the tensors' checksums (content), in order.

    Independent of bucket sizes: two hops with different buckets agree on both numbers.
    """

    def __init__(self) -> None:
        self._manifest = xxhash.xxh3_64()
        self._content = xxhash.xxh3_64()
        self.checksums: dict[str, int] = {}
        self.nbytes = 0

    def add(self, spec: TensorSpec, nbytes: int, checksum: int) -> None:
        if spec.name in self.checksums:
            raise TransportError(
                f"tensor {spec.name!r} was sent twice", remedy="send each name, and tied weights, once"
            )
        self.checksums[spec.name] = checksum
        self.nbytes += nbytes
        self._manifest.update(msgspec.msgpack.encode(spec))
        self._content.update(checksum.to_bytes(8, "little"))

    @property
    def manifest(self) -> int:
        return self._manifest.intdigest()

    @property
    def content(self) -> int:
        return self._content.intdigest()
