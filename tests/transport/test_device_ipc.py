# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Device memory between processes, as far as a machine without a device can tell: addresses, probes, falling back."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
import torch

from verl.errors import TransportError
from verl.transport import device_ipc
from verl.transport.header import ArenaHandle, DeviceHandle
from verl.transport.receiver import BucketedWeightReceiver, ReceiverThread
from verl.transport.sender import BucketedWeightSender


class Devices:
    """torch's device module of a process that sees the physical devices of these PCI buses, in this order."""

    def __init__(self, *buses: int) -> None:
        self.buses = buses

    def device_count(self) -> int:
        return len(self.buses)

    def get_device_properties(self, device: torch.device) -> SimpleNamespace:
        return SimpleNamespace(pci_domain_id=0, pci_bus_id=self.buses[device.index], pci_device_id=0)


def sees(monkeypatch: pytest.MonkeyPatch, *buses: int) -> None:
    monkeypatch.setattr(torch, "get_device_module", lambda device_type: Devices(*buses))


def test_a_device_is_found_by_its_bus_whatever_its_number_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    sees(monkeypatch, 0x83, 0x05)
    exported = device_ipc.pci_address(torch.device("cuda", 1))
    assert exported == "0000:05:00"
    sees(monkeypatch, 0x05, 0x43, 0x83)
    assert device_ipc.local_ordinal("cuda", exported) == 0


def test_a_device_that_is_masked_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sees(monkeypatch, 0x43)
    with pytest.raises(TransportError, match=r"not visible here.*0000:05:00.*0000:43:00"):
        device_ipc.local_ordinal("cuda", "0000:05:00")


def test_the_probe_tells_the_right_memory_from_any_other_place() -> None:
    memory = torch.zeros(1024, dtype=torch.uint8)
    offset = 272
    pattern = device_ipc.probe_pattern(offset)
    memory[offset : offset + len(pattern)] = torch.tensor(pattern, dtype=torch.uint8)
    assert device_ipc.probe(memory, offset, pattern) is None
    assert "byte 272" in device_ipc.probe(memory.roll(1), offset, pattern)
    assert device_ipc.probe(torch.zeros(1024, dtype=torch.uint8), offset, pattern)
    assert device_ipc.probe_pattern(0) != device_ipc.probe_pattern(16), "a mapping that starts elsewhere shows"


def test_kinds_follow_the_device() -> None:
    assert device_ipc.ipc_kind("cpu") == "none"
    assert device_ipc.ipc_kind("npu") == "none"
    assert device_ipc.ipc_kind("cuda") in ("cuda", "hip")


def transfer(handle: str, sender: BucketedWeightSender, ipc: str) -> tuple[dict[str, torch.Tensor], str]:
    thread = ReceiverThread(
        lambda stopped: BucketedWeightReceiver(handle, torch.device("cpu"), deadline_s=10, ipc=ipc, stopped=stopped),
        "receiver",
    )
    stats = asyncio.run(sender.async_send_weights([("w", torch.arange(5))]))
    return thread.result(5).tensors, stats.medium


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_sender_that_cannot_export_says_so_and_uses_shared_memory(
    handle: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        sender = BucketedWeightSender(handle, 1, deadline_s=10, device=torch.device("cuda", 0))
        tensors, medium = transfer(handle, sender, ipc="cuda")
    assert tensors["w"].tolist() == [0, 1, 2, 3, 4] and medium == "shm"
    assert "device IPC is not usable" in caplog.text


class BogusExport(BucketedWeightSender):
    """Offers device memory that nobody can map."""

    answers: list[str]

    def _wants_device(self) -> bool:
        return True

    async def _offer_device(self) -> str | None:
        handle = DeviceHandle("cuda", "ffff:ff:00", b"x" * 64, 4096, 0, b"r", 0, b"e", True)
        await self._offer(ArenaHandle(4096, device=handle, probe=(1, 2, 3), probe_offset=80))
        self.answers = [receiver.ready.problem for receiver in self._receivers.values()]
        return self.answers[0]


def test_a_receiver_that_cannot_map_answers_why_and_takes_shared_memory(handle: str) -> None:
    sender = BogusExport(handle, 1, deadline_s=10)
    tensors, medium = transfer(handle, sender, ipc="cuda")
    assert tensors["w"].tolist() == [0, 1, 2, 3, 4] and medium == "shm"
    assert sender.answers[0], "the receiver said why it could not map"


@pytest.mark.parametrize(("use_shm", "ipc"), [(True, "cuda"), (False, "none")])
def test_shared_memory_is_taken_where_it_is_asked_for_or_one_side_has_no_ipc(
    handle: str, use_shm: bool, ipc: str, caplog: pytest.LogCaptureFixture
) -> None:
    sender = BucketedWeightSender(handle, 1, use_shm, deadline_s=10, device=torch.device("cuda", 0))
    assert transfer(handle, sender, ipc)[1] == "shm"
    assert "not usable" not in caplog.text, "nothing was tried, so there is nothing to report"
