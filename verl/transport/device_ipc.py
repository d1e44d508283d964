# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Device memory shared between two processes of one node (CUDA and HIP); not run on hardware by this project's CI.

A handle carries the exporter's ordinal, which means another device, or none, where the visible-device masks differ.
So it travels with the PCI address, and the importer looks up its own ordinal. Whether the mapping really is the same
memory is not believed but tested, between the very two processes that will transfer: see `probe`.
"""

from typing import Any

import torch
from torch.multiprocessing import reductions

from verl.errors import TransportError
from verl.transport.header import DeviceHandle

PROBE_BYTES = 64

_REDUCED_FIELDS = (
    "tensor_cls",
    "size",
    "stride",
    "offset",
    "storage_cls",
    "dtype",
    "device",
    "handle",
    "storage_bytes",
    "storage_offset",
    "requires_grad",
    "ref_counter_handle",
    "ref_counter_offset",
    "event_handle",
    "event_sync_required",
)
"""What torch 2.x passes to `rebuild_cuda_tensor`, in order."""


def pci_address(device: torch.device) -> str:
    """domain:bus:device of an accelerator, equal in every process that sees it."""
    facts = torch.get_device_module(device.type).get_device_properties(device)
    return f"{facts.pci_domain_id:04x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}"


def local_ordinal(device_type: str, pci: str) -> int:
    """This process's ordinal of the device at `pci`."""
    count = torch.get_device_module(device_type).device_count()
    seen = [pci_address(torch.device(device_type, index)) for index in range(count)]
    if pci not in seen:
        raise TransportError("the exporting device is not visible here", got=pci, expected=f"one of {seen}")
    return seen.index(pci)


def probe_pattern(offset: int) -> tuple[int, ...]:
    """Bytes that depend on where they lie, so that a mapping of the wrong place shows."""
    return tuple((offset * 31 + index * 7 + 1) % 251 for index in range(PROBE_BYTES))


def export(buffer: torch.Tensor, kind: str) -> DeviceHandle:
    """A handle of `buffer` (flat uint8 device memory) for `rebuild_ipc` in another process."""
    # reduce_tensor answers (rebuild function, its arguments); only plain fields of it cross the wire.
    _, arguments = reductions.reduce_tensor(buffer)
    names = _REDUCED_FIELDS
    if len(arguments) != len(names):
        raise TransportError(
            "this torch exports device memory in a form that is not known here",
            got=f"{len(arguments)} fields",
            expected=f"{len(names)}",
            remedy="shared memory is used instead",
        )
    fields: dict[str, Any] = dict(zip(names, arguments, strict=True))
    return DeviceHandle(
        kind=kind,
        pci=pci_address(buffer.device),
        handle=bytes(fields["handle"]),
        storage_bytes=int(fields["storage_bytes"]),
        storage_offset=int(fields["storage_offset"]),
        ref_counter_handle=bytes(fields["ref_counter_handle"]),
        ref_counter_offset=int(fields["ref_counter_offset"]),
        event_handle=bytes(fields["event_handle"]),
        event_sync_required=bool(fields["event_sync_required"]),
    )


def rebuild_ipc(handle: DeviceHandle, nbytes: int, device_type: str = "cuda") -> torch.Tensor:
    """Map exported memory: flat uint8 of `nbytes` on this process's ordinal of the same physical device."""
    return reductions.rebuild_cuda_tensor(
        torch.Tensor,
        (nbytes,),
        (1,),
        0,
        torch.UntypedStorage,
        torch.uint8,
        local_ordinal(device_type, handle.pci),
        handle.handle,
        handle.storage_bytes,
        handle.storage_offset,
        False,
        handle.ref_counter_handle,
        handle.ref_counter_offset,
        handle.event_handle,
        handle.event_sync_required,
    )


def probe(mapped: torch.Tensor, offset: int, expected: tuple[int, ...]) -> str | None:
    """None where the exporter's pattern is read back at `offset`, else what is wrong."""
    got = tuple(mapped[offset : offset + len(expected)].cpu().tolist())
    return None if got == expected else f"the pattern at byte {offset} reads {got[:8]}…, written was {expected[:8]}…"


def ipc_kind(device_type: str) -> str:
    """How device memory of this type may be shared: "cuda", "hip", or "none" (then it goes through shared memory)."""
    if device_type != "cuda":
        return "none"
    return "hip" if torch.version.hip else "cuda"
