# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Shards of an FSDP checkpoint to full tensors, without a process group."""

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from verl.errors import CheckpointError, UnsupportedError
from verl.model_merger.base_model_merger import BaseModelMerger, Tensors

_FILE = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")


class FSDPModelMerger(BaseModelMerger):
    """Reads `model_world_size_W_rank_r.pt` of all ranks."""

    def load_full_state(self) -> Tensors:
        """Every tensor in full, under the names that the module had in training."""
        folder = Path(self.options.local_dir).expanduser()
        states = [_read(path) for path in rank_files(folder)]
        for rank, state in enumerate(states):
            if state.keys() != states[0].keys():
                raise CheckpointError("the ranks hold different names", where=f"{folder} rank {rank}")
        return {name: merge_tensor(name, [state[name] for state in states]) for name in states[0]}


def rank_files(folder: Path) -> list[Path]:
    """The files of all ranks in order; a missing one is named."""
    found = {(int(m[1]), int(m[2])) for m in map(_FILE.fullmatch, (p.name for p in folder.glob("model_*.pt"))) if m}
    sizes = sorted({world_size for world_size, _ in found})
    if not sizes:
        raise CheckpointError("no model shards", where=str(folder), expected="model_world_size_W_rank_r.pt")
    world_size = _stated_world_size(folder) or sizes[-1]
    files = [folder / f"model_world_size_{world_size}_rank_{rank}.pt" for rank in range(world_size)]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise CheckpointError("shards are missing", where=str(folder), got="no " + ", ".join(missing))
    return files


def _stated_world_size(folder: Path) -> int | None:
    path = folder / "fsdp_config.json"
    return int(json.loads(path.read_text())["world_size"]) if path.is_file() else None


def _read(path: Path) -> Tensors:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError(f"the file cannot be read ({error})", where=str(path)) from error


def merge_tensor(name: str, parts: list[torch.Tensor]) -> torch.Tensor:
    """One tensor from what each rank holds of it: shards are joined, copies compared and taken once."""
    first = parts[0]
    if not isinstance(first, DTensor):
        return _one_of_equals(name, parts)
    mesh = first.device_mesh.mesh
    shards: list[Any] = list(parts)
    locals_by_rank = [shard._local_tensor for shard in shards]
    if mesh.numel() != len(parts):
        raise CheckpointError(f"{name} was laid out over {mesh.numel()} ranks", got=f"{len(parts)} files")
    return _merge_along(name, mesh, first.placements, locals_by_rank).to(first.dtype)


def _merge_along(name: str, mesh: torch.Tensor, placements: tuple, locals_by_rank: list[torch.Tensor]) -> torch.Tensor:
    """Undo the outermost mesh dimension last: `Shard(d)` joins along d, `Replicate` compares."""
    if mesh.dim() == 0:
        return locals_by_rank[int(mesh)]
    pieces = [_merge_along(name, part, placements[1:], locals_by_rank) for part in mesh]
    placement = placements[0]
    if isinstance(placement, Replicate):
        return _one_of_equals(name, pieces)
    if type(placement) is Shard:
        return torch.cat(pieces, dim=placement.dim)
    raise UnsupportedError(
        f"{name} has a layout that is not merged here", got=str(placement), expected="Shard or Replicate"
    )


def _one_of_equals(name: str, copies: list[torch.Tensor]) -> torch.Tensor:
    if any(copy.shape != copies[0].shape or not torch.equal(copy, copies[0]) for copy in copies[1:]):
        raise CheckpointError(f"the copies of {name} differ between ranks", remedy="the checkpoint is damaged")
    return copies[0]
