# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Weights through device memory between two real processes: every byte, many versions, unequal masks."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.special_gpu.ipc_receiver import fingerprint
from verl.launch_info import LaunchInfo
from verl.platform import current_platform
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender, weight_socket_handle

pytestmark = pytest.mark.gpu

RECEIVER = Path(__file__).with_name("ipc_receiver.py")
BUCKET_BYTES = 1 << 20


def weights(version: int, device: torch.device) -> dict[str, torch.Tensor]:
    """All that is awkward: strides, no elements, no dimensions, several types, one tensor larger than three buckets."""
    generator = torch.Generator().manual_seed(version)
    large = torch.randn(900_000, generator=generator)
    tensors = {
        "transposed": large[:600].view(20, 30).t(),
        "every second": large[::2],
        "large": large,
        "half": large[:1001].to(torch.bfloat16),
        "exact": torch.tensor(1 + 2**-12, dtype=torch.float32),
        "empty": torch.empty(0, 4),
        "ids": torch.arange(version, version + 77),
    }
    return {name: tensor.to(device) for name, tensor in tensors.items()}


@pytest.fixture
def handle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    info = LaunchInfo.new()
    yield weight_socket_handle(info, 0, 0)
    assert list(info.run_dir.rglob("*.sock")) == [], "sockets are left behind"


def transfer(handle: str, device: torch.device, versions: int, mask: str | None = None) -> list[str]:
    """Send `versions` versions to a process with that mask, compare every byte; the road of each."""
    environ = dict(os.environ)
    if mask is not None:
        environ[current_platform().visible_devices_env] = mask
    place = "cpu" if device.type == "cpu" else f"{device.type}:0"
    command = [sys.executable, str(RECEIVER), handle, place]
    receiver = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    roads = []
    try:
        for version in range(versions):
            sent = weights(version, device)
            receiver.stdin.write(f"{version}\n")
            receiver.stdin.flush()
            sender = BucketedWeightSender(
                handle, version=version, deadline_s=60, bucket_bytes=BUCKET_BYTES, device=device
            )
            stats = asyncio.run(sender.async_send_weights(sent.items()))
            got = json.loads(receiver.stdout.readline())
            assert got["tensors"] == {name: fingerprint(tensor) for name, tensor in sent.items()}
            assert got["places"] == [place]
            roads.append(stats.medium)
        receiver.stdin.close()
        assert receiver.wait(timeout=60) == 0
    finally:
        receiver.kill()
    return roads


def test_every_byte_arrives_through_device_memory(handle: str, device: torch.device) -> None:
    expected = "ipc" if current_platform().ipc != "none" else "shm"
    assert transfer(handle, device, versions=3) == [expected] * 3, "the log says why device IPC was not usable"


def test_a_hundred_versions_leave_no_memory_behind(handle: str, device: torch.device) -> None:
    platform = current_platform()
    transfer(handle, device, versions=1)
    before = platform.memory_info()["allocated"]
    transfer(handle, device, versions=100)
    platform.empty_cache()
    grown = platform.memory_info()["allocated"] - before
    # On the host "allocated" is the whole process; a leak of one buffer a version would be 200 MiB.
    assert grown < (8 << 20 if device.type != "cpu" else 64 << 20)


def test_masks_that_differ_on_the_two_sides_name_the_same_device(handle: str, device: torch.device) -> None:
    count = current_platform().device_count()
    if device.type == "cpu" or count < 2:
        pytest.skip("needs two accelerators")
    reversed_mask = ",".join(str(number) for number in reversed(range(count)))
    roads = transfer(handle, torch.device(device.type, count - 1), versions=2, mask=reversed_mask)
    assert roads == ["ipc"] * 2, "the receiver's device 0 is the sender's last"
    assert transfer(handle, device, versions=2, mask=str(count - 1)) == ["shm"] * 2, "a device that is masked there"
