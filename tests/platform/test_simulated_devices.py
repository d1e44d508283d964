# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Real processes with real masks over a simulated HIP build of torch: 1, 4 and 8 devices, equal and unequal masks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SIMULATED = Path(__file__).parent / "simulated_torch"
VISIBLE = """
from verl.platform import current_platform
platform = current_platform()
platform.settle_visible_devices()
import json, os, torch
masks = {name: os.environ[name] for name in os.environ if name.endswith("VISIBLE_DEVICES")}
print(json.dumps({"platform": platform.name, "seen": torch.cuda.seen(), "masks": masks}))
"""


def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {"PYTHONPATH": str(SIMULATED), "PATH": "/usr/bin:/bin", **environ}
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)


def output(code: str, **environ: str) -> Any:
    done = run(code, **environ)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("devices", [1, 4, 8])
def test_a_hip_build_with_devices_is_rocm(devices: int) -> None:
    code = "from verl.platform import current_platform as p; import json; print(json.dumps(p().describe()))"
    told = output(code, SIMULATED_DEVICES=str(devices))
    assert told == (
        f"rocm (torch is built for HIP 7.2.53150, and {devices} device(s) are here); collective nccl, device IPC hip"
    )


def test_a_hip_build_without_devices_is_cpu_and_says_why() -> None:
    code = "from verl.platform import current_platform as p; import json; print(json.dumps(p().describe()))"
    told = output(code, SIMULATED_DEVICES="0")
    assert told.startswith("cpu (torch is built for HIP 7.2.53150, but no device is here")


@pytest.mark.parametrize(
    ("masks", "mask", "seen"),
    [
        ({}, None, range(8)),
        ({"HIP_VISIBLE_DEVICES": "0,1"}, "0,1", [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "5"}, "5", [5]),
        ({"HIP_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "3"}, "3", [3]),
        ({"ROCR_VISIBLE_DEVICES": "2"}, "2", [2]),
        ({"HIP_VISIBLE_DEVICES": "7,6,5,4"}, "7,6,5,4", [7, 6, 5, 4]),
    ],
)
def test_whatever_the_mask_is_called_the_process_sees_its_devices(
    masks: dict[str, str], mask: str | None, seen: Any
) -> None:
    told = output(VISIBLE, VERL_PLATFORM="rocm", **masks)
    assert told["seen"] == [f"device-{number}" for number in seen]
    assert told["masks"] == ({} if mask is None else {"CUDA_VISIBLE_DEVICES": mask})


@pytest.mark.parametrize(
    ("masks", "unset"),
    [
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, "CUDA_VISIBLE_DEVICES"),
        ({"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0"}, "ROCR_VISIBLE_DEVICES"),
        ({"ROCR_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0"}, "ROCR_VISIBLE_DEVICES"),
    ],
)
def test_masks_that_contradict_end_before_a_device_is_touched(masks: dict[str, str], unset: str) -> None:
    done = run(VISIBLE, VERL_PLATFORM="rocm", **masks)
    assert done.returncode != 0
    assert f"unset {unset} in the shell that starts the job" in done.stderr


def test_the_device_is_reached_through_the_platform() -> None:
    code = """
import json, torch
from verl.platform import current_platform
p = current_platform()
p.set_device(2)
p.synchronize(); p.empty_cache(); p.ipc_collect()
print(json.dumps([p.current_device(), p.device_count(), torch.cuda.calls(), p.memory_info(), p.peak_flops(),
    p.device_capability(), p.device_architecture(), p.attn_implementation, p.server_actor_env()]))
"""
    current, count, calls, memory, flops, capability, architecture, attention, env = output(code)
    assert (current, count) == (2, 8)
    assert calls == ["synchronize", "empty_cache", "ipc_collect"]
    assert memory == {"allocated": 10 << 30, "reserved": 12 << 30, "free": 150 << 30, "total": 192 << 30}
    assert flops == pytest.approx(1307.4e12) and capability == [9, 4] and architecture == "gfx942"
    assert attention in ("flash_attention_2", "sdpa")
    assert env["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] == "0"


EXPORTABLE = """
import json, torch
from verl.platform import current_platform
with current_platform().exportable_memory():
    torch.cuda.synchronize()
print(json.dumps(torch.cuda.calls()))
"""


@pytest.mark.parametrize(
    ("environ", "calls"),
    [
        ({}, ["synchronize"]),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:128"}, ["synchronize"]),
        (
            {"PYTORCH_ALLOC_CONF": "max_split_size_mb:128, expandable_segments:True"},
            ["expandable_segments:False", "synchronize", "expandable_segments:True"],
        ),
        (
            {"PYTORCH_HIP_ALLOC_CONF": "expandable_segments:True"},
            ["expandable_segments:False", "synchronize", "expandable_segments:True"],
        ),
    ],
)
def test_memory_to_be_exported_lies_outside_growable_segments(environ: dict[str, str], calls: list[str]) -> None:
    assert output(EXPORTABLE, **environ) == calls


PCI = """
import json, torch
from verl.transport.device_ipc import local_ordinal, pci_address
from verl.errors import TransportError
def ordinal(pci):
    try:
        return local_ordinal("cuda", pci)
    except TransportError:
        return None
import sys
asked = sys.stdin.read().split() or [pci_address(torch.device("cuda", i)) for i in range(torch.cuda.device_count())]
print(json.dumps([[pci, ordinal(pci)] for pci in asked]))
"""


@pytest.mark.parametrize(
    ("exporter", "importer", "ordinals"),
    [
        ("0,1,2,3", "0,1,2,3", [0, 1, 2, 3]),
        ("0,1,2,3", "3,2,1,0", [3, 2, 1, 0]),
        ("4", "0,4", [1]),
        ("4,5,6,7", "0,1,6,7", [None, None, 2, 3]),
        ("2,3", "0,1", [None, None]),
    ],
)
def test_a_device_is_the_same_device_under_unequal_masks(
    exporter: str, importer: str, ordinals: list[int | None]
) -> None:
    addresses = [pci for pci, _ in output(PCI, HIP_VISIBLE_DEVICES=exporter)]
    environ = {"PYTHONPATH": str(SIMULATED), "HIP_VISIBLE_DEVICES": importer}
    command = [sys.executable, "-c", PCI]
    done = subprocess.run(command, env=environ, input=" ".join(addresses), capture_output=True, text=True, check=True)
    assert [ordinal for _, ordinal in json.loads(done.stdout)] == ordinals


EXPORTER = """
import sys, torch
from types import SimpleNamespace
from verl.transport.device_ipc import export
from verl.transport.header import ArenaHandle, Begin, Peer, encode
for index in range(torch.cuda.device_count()):
    handle = export(SimpleNamespace(device=torch.device("cuda", index), nbytes=4096), "hip")
    arena = ArenaHandle(4096, device=handle, probe=(1, 2, 3), probe_offset=80)
    print(torch.cuda.seen()[index], encode(Begin(Peer.me("weight sender", 0), 7, arena, "xxh3")).hex())
"""
IMPORTER = """
import json, sys, torch
from verl.transport.device_ipc import rebuild_ipc
from verl.transport.header import decode
for line in sys.stdin:
    exported, frame = line.split()
    handle = decode(bytes.fromhex(frame), "the sender").arena.device
    try:
        mapped = rebuild_ipc(handle, 4096)
        print(json.dumps([exported, handle.pci, mapped.physical, mapped.ordinal]))
    except Exception as error:
        print(json.dumps([exported, handle.pci, type(error).__name__, None]))
"""


@pytest.mark.parametrize(
    ("devices", "exporter", "importer", "ordinals"),
    [
        (1, "0", "0", [0]),
        (4, "0,1,2,3", "0,1,2,3", [0, 1, 2, 3]),
        (4, "0,1,2,3", "2,3,0,1", [2, 3, 0, 1]),
        (8, "0,1,2,3,4,5,6,7", "7,6,5,4,3,2,1,0", [7, 6, 5, 4, 3, 2, 1, 0]),
        (8, "4,5,6,7", "6,7", [None, None, 0, 1]),
    ],
)
def test_the_header_names_the_device_by_its_pci_address_and_opens_on_that_device_only(
    devices: int, exporter: str, importer: str, ordinals: list[int | None]
) -> None:
    here = {"SIMULATED_DEVICES": str(devices), "VERL_PLATFORM": "rocm"}
    sent = run(EXPORTER, HIP_VISIBLE_DEVICES=exporter, **here)
    assert sent.returncode == 0, sent.stderr
    environ = {"PYTHONPATH": str(SIMULATED), "HIP_VISIBLE_DEVICES": importer, **here}
    command = [sys.executable, "-c", IMPORTER]
    done = subprocess.run(command, env=environ, input=sent.stdout, capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [ordinal for *_, ordinal in told] == ordinals
    for number, (exported, pci, found, ordinal) in zip(exporter.split(","), told, strict=True):
        assert exported == f"device-{number}" and pci == f"0000:{16 * int(number) + 5:02x}:00"
        assert found == (exported if ordinal is not None else "TransportError")


def test_a_handle_opened_by_the_exporters_own_number_would_not_be_that_device() -> None:
    code = """
from types import SimpleNamespace
import torch
from torch.multiprocessing.reductions import rebuild_cuda_tensor
fields = ["T", (8,), (1,), 0, "S", "uint8", 0, b"device-4", 8, 0, False, b"c", 0, b"e", True]
rebuild_cuda_tensor(*fields)
"""
    assert run(code, HIP_VISIBLE_DEVICES="4,5").returncode == 0
    assert "invalid device pointer" in run(code, HIP_VISIBLE_DEVICES="5,4").stderr, "the stand-in must notice"
