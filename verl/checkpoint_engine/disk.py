# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`disk`: a directory of safetensors that every rank can read; slow, and sure. A STABLE mark says that it is whole."""

import asyncio
import json
import shutil
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry, Kwargs
from verl.errors import ConfigError, TransportError
from verl.launch_info import LaunchInfo
from verl.transport.checksum import CorruptBytes, Fold, HostChecksum
from verl.transport.layout import as_bytes, spec_of
from verl.transport.stats import DEFAULT_DEADLINE_S, TransferStats, text_of
from verl.transport.streams import Weights, as_async, drain
from verl.waits import expired, waiting_on

STABLE = "STABLE"
FAILED = "FAILED"
_POLL_S = 0.05


@CheckpointEngineRegistry.register("disk")
class DiskCheckpointEngine(CheckpointEngine):
    """Update number n of a connection lies in `<path>/<connection>-<n>`; both sides count.

    `path` must be the same directory for all ranks; without one, the run directory of this host is used.
    """

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        path: str | None = None,
        deadline_s: float = 5 * DEFAULT_DEADLINE_S,
    ) -> None:
        self.bucket_size = bucket_size
        self.is_master = is_master
        self.deadline_s = deadline_s
        self.rank: int | None = None
        self._path = path
        self._prefix: Path | None = None
        self._count = 0

    def prepare(self) -> str | None:
        """The master names the connection."""
        if not self.is_master:
            return None
        root = Path(self._path) if self._path else LaunchInfo.from_env().ensure_run_dir() / "weights"
        root.mkdir(parents=True, exist_ok=True)
        return str(root.resolve() / uuid.uuid4().hex[:8])

    @classmethod
    def build_topology(
        cls, trainer_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[Kwargs, Kwargs]:
        prefix = next((item for item in metadata if item is not None), None)
        if prefix is None:
            raise ConfigError("no trainer rank is the master", remedy="create rank 0's engine with is_master=True")

        def kwargs(ranks: list[int]) -> Kwargs:
            return {"rank": ranks, "prefix": [prefix] * len(ranks)}

        return kwargs([0] + [-1] * (trainer_world_size - 1)), kwargs(list(range(1, rollout_world_size + 1)))

    def init_process_group(self, rank: int, prefix: str) -> None:
        self.rank, self._prefix, self._count = rank, Path(prefix), 0

    def finalize(self) -> None:
        """Forget the connection; the master removes its directories."""
        if self.rank == 0 and self._prefix is not None:
            for number in range(max(0, self._count - 2), self._count):
                shutil.rmtree(self._directory(number), ignore_errors=True)
        self.rank = self._prefix = None

    def _directory(self, number: int) -> Path:
        if self._prefix is None:
            raise TransportError("the engine is not connected", remedy="call init_process_group first")
        return self._prefix.with_name(f"{self._prefix.name}-{number}")

    @torch.no_grad()
    async def send_weights(self, weights: Weights, global_steps: int | None = None) -> TransferStats | None:
        """Write everything, then the mark; the update before the last one is removed."""
        stream = as_async(weights)
        if self.rank is None or self.rank != 0:
            await drain(stream)
            return None
        directory, self._count = self._directory(self._count), self._count + 1
        shutil.rmtree(self._directory(self._count - 2), ignore_errors=True) if self._count > 1 else None
        try:
            return await self._write(directory, stream, -1 if global_steps is None else global_steps)
        except BaseException as error:
            directory.mkdir(parents=True, exist_ok=True)
            _put(directory / FAILED, f"{type(error).__name__}: {error}")
            await drain(stream)
            raise

    async def _write(
        self, directory: Path, weights: AsyncIterator[tuple[str, torch.Tensor]], version: int
    ) -> TransferStats:
        started = time.monotonic()
        directory.mkdir(parents=True)
        fold, shard, used, files = Fold(), dict[str, torch.Tensor](), 0, 0
        async for name, tensor in weights:
            owned = tensor.detach().to("cpu", copy=True).contiguous()
            data = as_bytes(name, owned)
            fold.add(spec_of(name, owned), data.numel(), HostChecksum().update(data))
            if shard and used + data.numel() > self.bucket_size:
                await asyncio.to_thread(save_file, shard, directory / f"{files:05d}.safetensors")
                shard, used, files = {}, 0, files + 1
            shard[name] = owned
            used += data.numel()
        if shard:
            await asyncio.to_thread(save_file, shard, directory / f"{files:05d}.safetensors")
            files += 1
        mark = {"version": version, "files": files, "checksums": fold.checksums, "content": fold.content}
        _put(directory / STABLE, json.dumps(mark))
        return TransferStats(
            version=version,
            bytes=fold.nbytes,
            tensors=len(fold.checksums),
            buckets=files,
            seconds=time.monotonic() - started,
            digest=text_of(fold.content),
            medium="disk",
        )

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Wait for the mark, then read in the order sent, checking each tensor."""
        directory, self._count = self._directory(self._count), self._count + 1
        mark = await self._stable(directory)
        if global_steps is not None and mark["version"] not in (-1, global_steps):
            raise TransportError("other weights were written", got=mark["version"], expected=global_steps)
        homes: dict[str, Any] = {}
        for number in range(mark["files"]):
            file = await asyncio.to_thread(safe_open, directory / f"{number:05d}.safetensors", "pt")
            homes.update(dict.fromkeys(file.keys(), file))
        for name, expected in mark["checksums"].items():
            if name not in homes:
                raise TransportError("a tensor is missing on disk", where=f"{directory}: {name}")
            tensor = await asyncio.to_thread(homes[name].get_tensor, name)
            checksum = HostChecksum().update(as_bytes(name, tensor))
            if checksum != expected:
                raise CorruptBytes(
                    "the bytes read are not those that were written",
                    where=f"{directory}: {name}",
                    got=text_of(checksum),
                    expected=text_of(expected),
                )
            yield name, tensor

    async def _stable(self, directory: Path) -> dict[str, Any]:
        end = time.monotonic() + self.deadline_s
        with waiting_on(f"{directory}/{STABLE}", "trainer rank 0", self.deadline_s):
            while not (directory / STABLE).exists():
                if (directory / FAILED).exists():
                    raise TransportError(f"trainer rank 0 aborted: {(directory / FAILED).read_text()}")
                if time.monotonic() > end:
                    raise expired(f"{directory}/{STABLE}", "trainer rank 0", self.deadline_s)
                await asyncio.sleep(_POLL_S)
        return json.loads((directory / STABLE).read_text())


def _put(path: Path, text: str) -> None:
    """Write whole or not at all."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)
