# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which platform is chosen, why, and what it costs to ask."""

import subprocess
import sys
from pathlib import Path

import pytest

from verl.errors import ConfigError
from verl.platform.detect import detect
from verl.platform.facts import MachineFacts, read_facts, torch_build

CPU = MachineFacts("2.13.0+cpu")
CUDA = MachineFacts("2.13.0+cu130", cuda="13.0", nvidia_devices=8)
ROCM = MachineFacts("2.11.0+rocm7.2", hip="7.2", amd_devices=8)
NPU = MachineFacts("2.9.0", torch_npu=True, npu_devices=16)


@pytest.mark.parametrize(
    ("facts", "name", "reason"),
    [
        (CPU, "cpu", "torch 2.13.0+cpu has no accelerator"),
        (CUDA, "cuda", "torch is built for CUDA 13.0, and 8 device(s) are here"),
        (ROCM, "rocm", "torch is built for HIP 7.2, and 8 device(s) are here"),
        (NPU, "npu", "torch_npu is installed, and 16 device(s) are here"),
        (MachineFacts(None), "cpu", "no torch is installed"),
        (MachineFacts("2.9.0", torch_npu=True), "cpu", "no accelerator"),
    ],
)
def test_the_build_and_the_devices_decide_and_the_reason_is_told(facts: MachineFacts, name: str, reason: str) -> None:
    platform = detect({}, facts)
    assert platform.name == name
    assert reason in platform.describe()


@pytest.mark.parametrize("name", ["cpu", "cuda", "rocm", "npu", "ROCM"])
def test_the_override_decides_whatever_the_machine_is(name: str) -> None:
    platform = detect({"VERL_PLATFORM": name}, CPU)
    assert platform.name == name.lower() and f"VERL_PLATFORM={name}" in platform.describe()


def test_an_unknown_override_names_the_known() -> None:
    with pytest.raises(ConfigError, match=r"VERL_PLATFORM: unknown platform. got 'tpu', expected one of npu, rocm"):
        detect({"VERL_PLATFORM": "tpu"}, CPU)


def test_this_machine_is_asked_without_loading_torch() -> None:
    code = (
        "import sys; from verl.platform import current_platform as p; import verl.utils.device as d; "
        "print(p().name, d.get_nccl_backend(), d.is_cuda_available, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name, collective, is_cuda, torch_loaded = done.stdout.split()
    facts = read_facts()
    devices = facts.nvidia_devices + facts.amd_devices
    # Only a build for devices that have no node here is asked itself.
    assert torch_loaded == str(bool(facts.cuda or facts.hip) and not devices and name == "cpu")
    if name == "cpu":
        assert (collective, is_cuda) == ("gloo", "False")


def test_the_torch_build_is_read_as_text() -> None:
    import torch

    build = torch_build()
    assert build["__version__"] == torch.__version__
    assert build["cuda"] == torch.version.cuda and build["hip"] == torch.version.hip


def test_devices_are_counted_from_the_kernels_lists(tmp_path: Path) -> None:
    for node in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "kfd", "davinci0", "davinci_manager"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / node).touch()
    for number, simd_count in enumerate((0, 0, 1216, 1216, 1216)):
        node = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(number)
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 96\nsimd_count {simd_count}\nmem_banks_count 1\n")
    facts = read_facts(tmp_path)
    assert (facts.nvidia_devices, facts.amd_devices, facts.npu_devices) == (2, 3, 1)


THIRD_PARTY = """
from verl.platform import Platform

class Mine(Platform):
    name, vendor, device_type, collective = "mine", "me", "cpu", "gloo"
    visible_devices_env, ray_resource = "MY_DEVICES", "MINE"

    @classmethod
    def detect(cls, facts):
        return "it is always here"
"""


def installed(directory: Path, target: str) -> dict[str, str]:
    (directory / "my_platform.py").write_text(THIRD_PARTY)
    info = directory / "my_platform-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-platform\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[verl.platforms]\nmine = {target}\n")
    return {"PYTHONPATH": str(directory)}


def ask(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = "from verl.platform import current_platform; print(current_platform().describe())"
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)


def test_a_third_partys_platform_is_asked_first_and_can_be_overridden(tmp_path: Path) -> None:
    environ = installed(tmp_path, "my_platform:Mine")
    assert ask(environ).stdout.startswith("mine (it is always here)")
    assert ask({**environ, "VERL_PLATFORM": "cpu"}).stdout.startswith("cpu (VERL_PLATFORM=cpu)")


def test_an_entry_point_that_is_no_platform_is_named(tmp_path: Path) -> None:
    message = ask(installed(tmp_path, "my_platform:THIRD")).stderr
    assert "THIRD" in message
    other = tmp_path / "other"
    other.mkdir()
    assert "entry point mine in verl.platforms" in ask(installed(other, "my_platform:Platform.__init__")).stderr
