# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A configuration against this machine: files, devices, memory, directories, keys nobody reads."""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import psutil

from verl.config.async_training import device_share
from verl.config.backend_bound import foreign_backend
from verl.config.explain import explain
from verl.config.run import RunConfig
from verl.config.validate import validate
from verl.doctor.findings import Finding, fact, problem
from verl.errors import VerlError
from verl.platform import current_platform
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path
from verl.utils.dataset.files import resolve_data_files
from verl.utils.fs import is_non_local

# AdamW in fp32: parameter, gradient, two moments.
TRAIN_BYTES_PER_PARAMETER = 16
GB = 1e9


def preflight(config: RunConfig) -> list[Finding]:
    """All findings about this configuration on this machine."""
    try:
        validate(config)
        found = [fact("arithmetic", sentence) for sentence in explain(config)]
    except VerlError as error:
        return [problem("configuration", error, error.remedy or "change the key that is named")]
    found += [*_files(config), *_devices(config), *_memory(config), *_output(config), *_extras(config)]
    return found


def _files(config: RunConfig) -> Iterator[Finding]:
    model = Path(config.actor_rollout_ref.model.path).expanduser()
    if model.is_absolute() and not model.is_dir():
        yield problem("actor_rollout_ref.model.path", f"{model} is no directory", "give a directory or a hub name")
    for key in ("train_files", "val_files"):
        files = getattr(config.data, key)
        for name in [files] if isinstance(files, str) else files or []:
            try:
                if not is_non_local(name):
                    resolve_data_files(name)
            except VerlError as error:
                yield problem(f"data.{key}", error, "give an existing file, pattern or directory")


def _devices(config: RunConfig) -> Iterator[Finding]:
    platform = current_platform()
    pools = {"trainer": config.trainer.num_devices}
    if config.rollout is not None:
        pools["rollout"] = config.rollout.num_devices
    share = device_share(config)
    wanted, nodes = math.ceil(sum(pools.values()) * share), config.trainer.nnodes
    said = " + ".join(f"{name} {count}" for name, count in pools.items())
    said += f", {share:g} of a device each" if share < 1 else ""
    if platform.device_type == "cpu":
        yield fact("processes", f"{said} ranks on {psutil.cpu_count()} cores")
    elif nodes == 1 and wanted > platform.device_count():
        remedy = "change trainer.n_gpus_per_node and rollout.n_gpus_per_node, or add nodes"
        yield problem("devices", f"{said} = {wanted} wanted, {platform.device_count()} are here", remedy)
    else:
        yield fact("devices", f"{said} = {wanted}")


def _memory(config: RunConfig) -> Iterator[Finding]:
    parameters = num_parameters(Path(config.actor_rollout_ref.model.path).expanduser())
    if parameters is None:
        return
    platform, actor = current_platform(), config.actor_rollout_ref.actor
    size, ranks = actor.fsdp_config.fsdp_size, config.trainer.num_devices
    shards = ranks if size == -1 else min(size, ranks)
    rank_bytes = parameters * TRAIN_BYTES_PER_PARAMETER / shards
    total = platform.memory_info()["total"]
    if platform.device_type == "cpu":
        rank_bytes *= config.trainer.n_gpus_per_node
    where = "this machine" if platform.device_type == "cpu" else "a device"
    said = f"{parameters / 1e6:.1f} M parameters: {rank_bytes / GB:.2f} GB of weights, gradients and optimizer state"
    if rank_bytes > total and not actor.fsdp_config.param_offload:
        remedy = "more ranks, fsdp_config.param_offload and optimizer_offload, or LoRA"
        yield problem("memory", f"{said}; {where} has {total / GB:.0f} GB", remedy)
    else:
        yield fact("memory", f"{said}; {where} has {total / GB:.0f} GB")


def num_parameters(model: Path) -> int | None:
    """Parameters of a local model, from the headers of its safetensors files; null where there are none."""
    files = sorted(model.glob("*.safetensors"))
    if not files:
        return None
    return sum(_header_elements(file) for file in files)


def _header_elements(file: Path) -> int:
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    count = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            elements = 1
            for size in tensor["shape"]:
                elements *= size
            count += elements
    return count


def _output(config: RunConfig) -> Iterator[Finding]:
    directory = Path(config.trainer.default_local_dir)
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        yield problem("trainer.default_local_dir", f"{existing} cannot be written", "give a directory of yours")
        return
    try:
        latest = find_latest_ckpt_path(str(directory)) if config.trainer.resume_mode == "auto" else None
    except VerlError as error:
        yield problem("trainer.default_local_dir", error, error.remedy or "look at the file that is named")
        return
    yield fact("output", f"{directory}, " + (f"resumes from {Path(latest).name}" if latest else "starts fresh"))


def _extras(config: RunConfig) -> Iterator[Finding]:
    for path in unread_keys(config):
        yield problem(path, "nobody in verl reads this key", "remove it, unless code of yours does")


def unread_keys(config: RunConfig) -> list[str]:
    """Keys that no field holds: left for extensions, or belonging to a backend that is left out and set by hand."""
    found: list[str] = []

    def visit(node: Any, path: str) -> None:
        for name in node.__dict__.get("_extras", {}):
            found.append(f"{path}{name}")
        for item in fields(node):
            # A field that is not compared shows another section.
            value = node.__dict__.get(item.name) if item.compare else None
            if is_dataclass(value):
                visit(value, f"{path}{item.name}.")

    visit(config, "")
    return [path for path in found if not foreign_backend(path)]
