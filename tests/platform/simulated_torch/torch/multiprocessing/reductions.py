# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Device memory between processes: as with the driver, a handle opens on the device that it came from, no other."""

from types import SimpleNamespace

from torch import cuda


def reduce_tensor(buffer: SimpleNamespace) -> tuple[object, tuple[object, ...]]:
    handle = cuda.seen()[buffer.device.index].encode()
    fields = (
        "Tensor",
        (buffer.nbytes,),
        (1,),
        0,
        "Storage",
        "uint8",
        buffer.device.index,
        handle,
        buffer.nbytes,
        0,
        False,
    )
    return rebuild_cuda_tensor, (*fields, b"counter", 0, b"event", True)


def rebuild_cuda_tensor(*fields: object) -> SimpleNamespace:
    ordinal, handle = fields[6], fields[7]
    if cuda.seen()[ordinal].encode() != handle:
        raise RuntimeError("HIP error: invalid device pointer")
    return SimpleNamespace(physical=cuda.seen()[ordinal], ordinal=ordinal, nbytes=fields[1][0])
