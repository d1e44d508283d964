# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The machine: torch build, devices, shared memory, limits, sockets, packages."""

import importlib.util
import os
import platform as host
import resource
import shutil
from pathlib import Path

import psutil

from verl.config.manifest import package_versions
from verl.doctor.findings import Finding, fact, problem
from verl.errors import VerlError
from verl.launch_info import LaunchInfo
from verl.platform import current_platform
from verl.platform.facts import beside_cpu_torch, torch_build

# Docker's default for /dev/shm is 64 MB; two transfer buffers and Ray's object store want more.
SHM_BYTES_MIN = 1 << 30
OPEN_FILES_MIN = 4096


def examine() -> list[Finding]:
    """All findings about this machine, in the order of the printout."""
    found = [fact("python", f"{host.python_version()} on {host.system()} {host.machine()}")]
    found += [fact(name, version) for name, version in package_versions().items()]
    found += [*_torch(), *_devices(), *_host(), *_shared_memory(), *_limits(), *_sockets()]
    return found


def _torch() -> list[Finding]:
    build = torch_build()
    if not build:
        return [problem("torch", "not installed", "install the build of your platform")]
    found = []
    beside = " ".join(beside_cpu_torch())
    if beside:
        found.append(problem(f"{beside} beside torch +cpu", "breaks import transformers", f"pip uninstall {beside}"))
    if importlib.util.find_spec("vllm") is None:
        found.append(problem("vllm", "cannot be imported", "install it, or set actor_rollout_ref.rollout.name=hf"))
    return found


def _devices() -> list[Finding]:
    try:
        platform = current_platform()
        platform.visible_devices_changes(os.environ)
    except VerlError as error:
        return [problem("platform", error.what, error.remedy or str(error))]
    found = [fact("platform", platform.describe())]
    if platform.device_type == "cpu":
        return found
    count = platform.device_count()
    if count == 0:
        return [*found, problem("devices", "none is visible", f"look at {platform.visible_devices_env}")]
    memory = platform.memory_info()
    found.append(fact("devices", f"{count} × {platform.device_name()}, {memory['total'] / 1e9:.0f} GB"))
    if platform.peak_flops() is None:
        found.append(
            problem("peak FLOPs", "unknown for this product", "no MFU is reported; add it to platform/flops.py")
        )
    return found


def _host() -> list[Finding]:
    memory = psutil.virtual_memory()
    return [
        fact("cpu", f"{psutil.cpu_count()} cores"),
        fact("memory", f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB free"),
    ]


def _shared_memory() -> list[Finding]:
    if not Path("/dev/shm").is_dir():
        return [problem("/dev/shm", "does not exist", "mount it: weights cross between processes there")]
    usage = shutil.disk_usage("/dev/shm")
    size = f"{usage.free / 1e9:.2f} of {usage.total / 1e9:.2f} GB free"
    if usage.free < SHM_BYTES_MIN:
        return [problem("/dev/shm", size, "start the container with --shm-size (or --ipc=host)")]
    return [fact("/dev/shm", size)]


def _limits() -> list[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_MIN:
        return [problem("open files", soft, f"ulimit -n {OPEN_FILES_MIN} or more: Ray opens many")]
    return [fact("open files", soft)]


def _sockets() -> list[Finding]:
    info = LaunchInfo.new()
    try:
        directory = info.ensure_run_dir()
        info.socket_path("w-r999-l99")
        directory.rmdir()
    except (VerlError, OSError) as error:
        return [problem("socket directory", error, "set TMPDIR to a short directory of yours")]
    return [fact("socket directory", info.run_dir.parent)]
