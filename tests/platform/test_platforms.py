# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What each platform says of itself, and what CPU answers when code asks as if it were a device."""

import logging

import pytest

from verl.errors import ConfigError
from verl.platform.cpu import CPUPlatform
from verl.platform.cuda import CUDAPlatform
from verl.platform.flops import PEAK_FLOPS, peak_flops
from verl.platform.npu import NPUPlatform, ipc_supported, npu_versions
from verl.platform.rocm import ROCmPlatform
from verl.platform.visible_devices import one_mask, ordinal


@pytest.mark.parametrize(
    ("platform", "facts"),
    [
        (CPUPlatform(), ("cpu", "cpu", "gloo", "none", "CPU")),
        (CUDAPlatform(), ("nvidia", "cuda", "nccl", "cuda", "GPU")),
        (ROCmPlatform(), ("rocm", "cuda", "nccl", "hip", "GPU")),
        (NPUPlatform(), ("ascend", "npu", "hccl", "none", "NPU")),
    ],
)
def test_a_platforms_facts(platform: CPUPlatform, facts: tuple[str, ...]) -> None:
    seen = (platform.vendor, platform.device_type, platform.collective, platform.ipc, platform.ray_resource)
    assert seen == facts


def test_a_server_actor_masks_its_own_children() -> None:
    noset = "RAY_EXPERIMENTAL_NOSET_{}_VISIBLE_DEVICES".format
    assert ROCmPlatform().server_actor_env() == {
        noset("CUDA"): "1",
        noset("HIP"): "1",
        noset("ROCR"): "1",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    assert CUDAPlatform().server_actor_env() == {noset("CUDA"): "1"}
    assert NPUPlatform().server_actor_env() == {noset("ASCEND_RT"): "1"}
    assert CPUPlatform().server_actor_env() == {}


def test_rocm_processes_do_not_reclaim_scratch() -> None:
    assert ROCmPlatform().rollout_env() == {"NCCL_CUMEM_ENABLE": "0", "HSA_NO_SCRATCH_RECLAIM": "1"}
    assert ROCmPlatform().worker_env()["HSA_NO_SCRATCH_RECLAIM"] == "1"
    assert "HSA_NO_SCRATCH_RECLAIM" not in CUDAPlatform().worker_env()


@pytest.mark.parametrize(
    ("environ", "changes"),
    [
        ({"HIP_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": None}),
        (
            {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0"},
            {"CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": None},
        ),
        ({"ROCR_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "2", "ROCR_VISIBLE_DEVICES": None}),
        ({"HIP_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": None}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8d2f,GPU-91aa"}, {}),
        (
            {"HIP_VISIBLE_DEVICES": "GPU-8d2f"},
            {"CUDA_VISIBLE_DEVICES": "GPU-8d2f", "HIP_VISIBLE_DEVICES": None},
        ),
        ({}, {}),
    ],
)
def test_three_masks_become_one(environ: dict[str, str], changes: dict[str, str | None]) -> None:
    assert one_mask(environ) == changes


def test_a_server_shows_its_devices_and_only_those() -> None:
    environ = {"HIP_VISIBLE_DEVICES": "4,5,6,7"}
    ROCmPlatform().show_only("6,7", environ)
    assert environ == {"CUDA_VISIBLE_DEVICES": "6,7"}
    contradicting = {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}
    with pytest.raises(ConfigError, match="unset CUDA_VISIBLE_DEVICES"):
        ROCmPlatform().show_only("0", contradicting)


@pytest.mark.parametrize(
    ("device", "mask", "number"),
    [("3", None, 3), ("6", "4,5,6,7", 2), ("4", "7, 6,5,4", 3), ("GPU-b", "GPU-a,GPU-b", 1)],
)
def test_a_device_has_another_number_under_a_mask(device: str, mask: str | None, number: int) -> None:
    assert ordinal(device, mask) == number


@pytest.mark.parametrize(("device", "mask"), [("0", "4,5"), ("0", ""), ("GPU-a", None)])
def test_a_device_that_the_mask_hides_is_an_error(device: str, mask: str | None) -> None:
    with pytest.raises(ConfigError, match=rf"hides the device.*device {device}.*start Ray with the same mask"):
        ordinal(device, mask)


def test_masks_of_amd_are_left_alone_on_nvidia_and_cpu() -> None:
    environ = {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}
    for platform in (CUDAPlatform(), CPUPlatform()):
        platform.settle_visible_devices(environ)
    assert environ == {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("AMD Instinct MI300X", 1307.4),
        ("MI300X OAM", 1307.4),
        ("AMD Instinct MI325X", 1307.4),
        ("AMD Instinct MI350X", 2306.9),
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989.5),
        ("NVIDIA H20", 148),
        ("NVIDIA GB200", 2500),
        ("NVIDIA L40S", 362.05),
    ],
)
def test_the_peak_of_a_known_product(name: str, tera: float) -> None:
    assert peak_flops(name) == pytest.approx(tera * 1e12)


def test_an_unknown_product_has_no_peak_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="verl"):
        assert [peak_flops("Unheard-of 9000") for _ in range(3)] == [None] * 3
    assert caplog.text.count("Unheard-of 9000") == 1
    assert all(0 < value < float("inf") for value in PEAK_FLOPS.values())


def test_cpu_answers_without_touching_an_accelerator() -> None:
    cpu = CPUPlatform()
    cpu.synchronize()
    cpu.empty_cache()
    cpu.ipc_collect()
    cpu.set_device(5)
    cpu.set_expandable_segments(True)
    memory = cpu.memory_info()
    assert 0 < memory["allocated"] < memory["total"] and memory["free"] > 0
    assert (cpu.device_count() >= 1, cpu.current_device(), cpu.device_capability()) == (True, 0, (None, None))
    assert cpu.peak_flops() and cpu.attn_implementation == "sdpa"


def test_a_random_state_saved_on_an_accelerator_is_left_aside_on_cpu() -> None:
    cpu = CPUPlatform()
    assert cpu.random_state() is None
    cpu.set_random_state([1, 2, 3])


@pytest.mark.parametrize(
    ("software", "cann", "supported"),
    [
        ("25.3.rc1", "8.3.RC1", True),
        ("26.0", "9.0", True),
        ("25.2.1", "8.3.RC1", False),
        ("25.3.rc1", "8.2.RC1", False),
        (None, "8.3", False),
        ("25.3", None, False),
    ],
)
def test_ascend_shares_memory_from_certain_versions_on(software: str | None, cann: str | None, supported: bool) -> None:
    assert ipc_supported(software, cann) is supported


def test_ascends_versions_are_null_where_nothing_is_installed() -> None:
    assert npu_versions({"ASCEND_HOME_PATH": "/nowhere"})[1] is None
