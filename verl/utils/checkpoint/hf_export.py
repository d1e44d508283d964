# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The `huggingface/` folder: configuration, tokenizer and code files, and on request the weights in shards."""

import json
import logging
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors.torch import save_file

logger = logging.getLogger(__name__)

# Transformers' own default; small enough for any file system, few enough files for a large model.
_SHARD_BYTES = 5 * 10**9
# What a model folder holds beside weights: written anew (configuration) or never wanted (weights of the base model).
_NOT_COPIED = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"}
_WRITTEN_BY_US = {"config.json", "generation_config.json"}


def write_config(model: Any, folder: Path) -> None:
    """`config.json`, and `generation_config.json` where the model has one that transformers accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    # FSDP2 puts a class of its own before the model's; whoever loads the folder looks for the model's name.
    model.config.architectures = [type(model).__name__.removeprefix("FSDP")]
    model.config.save_pretrained(folder)
    generation = getattr(model, "generation_config", None)
    if generation is None:
        return
    try:
        generation.save_pretrained(folder)
    except (OSError, ValueError) as error:
        # A side file never fails a checkpoint: the weights are what cannot be made again.
        logger.warning("generation_config.json is not written: %s", error)


def copy_side_files(source: str | None, folder: Path, processing_class: Any = None) -> None:
    """Tokenizer, processor, chat template and custom code of the base model; a warning where there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if processing_class is not None:
            processing_class.save_pretrained(folder)
        directory = _directory_of(source)
        for file in sorted(directory.iterdir()):
            wanted = file.is_file() and not file.name.startswith(".") and file.name not in _WRITTEN_BY_US
            is_weight = file.suffix in _NOT_COPIED or file.name.endswith(".index.json")
            if wanted and not is_weight and not (folder / file.name).exists():
                shutil.copyfile(file, folder / file.name)
    except (OSError, ValueError) as error:
        logger.warning("tokenizer files of %r are not copied into %s: %s", source, folder, error)


def _directory_of(source: str | None) -> Path:
    if not source:
        raise ValueError("the model has no path")
    path = Path(source).expanduser()
    return path if path.is_dir() else Path(snapshot_download(source, local_files_only=True))


def write_weights(tensors: Iterable[tuple[str, torch.Tensor]], folder: Path | None) -> None:
    """Write tensors to safetensors files of at most 5 GB, with an index when there are several.

    `folder` is None on ranks that only take part in the gathers. The iterator is exhausted in any case, also after an
    error: it gathers, and the other ranks wait for this one.
    """
    rest = iter(tensors)
    try:
        if folder is not None:
            _write_shards(rest, folder)
    finally:
        for _ in rest:
            pass


def _write_shards(tensors: Iterator[tuple[str, torch.Tensor]], folder: Path) -> None:
    shards: list[tuple[Path, list[str]]] = []
    pending: dict[str, torch.Tensor] = {}
    pending_bytes = total_bytes = 0
    for name, tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if pending and pending_bytes + size > _SHARD_BYTES:
            shards.append(_write_shard(pending, folder, len(shards)))
            pending, pending_bytes = {}, 0
        # A copy: on one rank the tensor is the parameter itself, and views may not be saved.
        pending[name] = tensor.detach().to("cpu", copy=True).contiguous()
        pending_bytes, total_bytes = pending_bytes + size, total_bytes + size
    shards.append(_write_shard(pending, folder, len(shards)))
    _name_shards(shards, folder, total_bytes)


def _write_shard(tensors: dict[str, torch.Tensor], folder: Path, number: int) -> tuple[Path, list[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-{number}.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    return path, list(tensors)


def _name_shards(shards: list[tuple[Path, list[str]]], folder: Path, total_bytes: int) -> None:
    if len(shards) == 1:
        shards[0][0].rename(folder / "model.safetensors")
        return
    weight_map: dict[str, str] = {}
    for number, (path, names) in enumerate(shards, start=1):
        final = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        path.rename(folder / final)
        weight_map |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
