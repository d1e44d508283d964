# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""FSDP checkpoints: one set of files a rank, written beside their place and published by rename."""

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from verl.errors import CheckpointError, ConfigError, UnsupportedError
from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager
from verl.utils.checkpoint.hf_export import copy_side_files, write_config, write_weights
from verl.utils.checkpoint.sharded_state import (
    load_model_state,
    load_optimizer_state,
    model_state,
    optimizer_state,
)
from verl.utils.distributed import succeed_together

logger = logging.getLogger(__name__)

LORA_META_FILE = "lora_train_meta.json"


@dataclass(frozen=True)
class FSDPConfig:
    """Content of `fsdp_config.json`."""

    FSDP_version: int
    world_size: int


class FSDPCheckpointManager(BaseCheckpointManager):
    """Writes `model_`, `optim_`, `extra_state_world_size_W_rank_r.pt`, `fsdp_config.json` and `huggingface/`.

    `export` gives the full tensors for `hf_model`; `model_config.path` is where the tokenizer files come from;
    `trust_remote_code` has no effect: a model's own code is copied beside its weights, and not run.
    `lora_meta` goes to `lora_train_meta.json`, without which an adapter's scale could not be told from its tensors.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        lr_scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
        processing_class: Any = None,
        checkpoint_config: Any = None,
        trust_remote_code: bool = False,
        *,
        model_config: Any = None,
        export: Callable[[], Iterator[tuple[str, torch.Tensor]]] | None = None,
        lora_meta: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(model, optimizer, lr_scheduler, processing_class, checkpoint_config)
        self.model_config = model_config or {}
        # Set wherever it is called: `save_checkpoint` asks for it.
        self.export: Any = export
        self.lora_meta = lora_meta
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()

    # ---- save -------------------------------------------------------------------------------------------------------

    def save_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, global_step: int = 0, max_ckpt_to_keep: int | None = None
    ) -> None:
        """Write this rank's files; `local_path` appears, whole, when every rank has written.

        A failure on any rank is an error on all of them, leaves earlier checkpoints alone and nothing at
        `local_path`. Old checkpoints go only after the new one is complete.
        """
        _refuse_remote(hdfs_path)
        if self.should_save_hf_model and self.export is None:
            raise ConfigError(
                "nothing gives the full tensors of hf_model",
                where="checkpoint.save_contents",
                got=list(self.save_contents),
                remedy="construct the manager with export=…, or leave hf_model out",
            )
        final = Path(local_path).expanduser().absolute()
        temporary = final.with_name(f".{final.name}.writing")
        succeed_together(lambda: self._clear(temporary), f"clear {temporary}")
        succeed_together(lambda: self._write(temporary), f"write {temporary}")
        # Apart from what a rank writes by itself: a rank that failed there would be missing in the gathers.
        if self.should_save_hf_model:
            folder = temporary / "huggingface" if self.rank == 0 else None
            succeed_together(lambda: write_weights(self.export(), folder), f"write {temporary}")
        # One after the other: where the nodes share the file system, rank 0's rename is the rename of all.
        succeed_together(lambda: self._publish(temporary, final, self.rank == 0), f"publish {final}")
        succeed_together(lambda: self._publish(temporary, final, self._is_node_leader), f"publish {final}")
        if self._is_node_leader:
            self.register_checkpoint(str(final), max_ckpt_to_keep)
        logger.info("rank %d saved step %d to %s", self.rank, global_step, final)

    @property
    def _is_node_leader(self) -> bool:
        # Under Ray LOCAL_RANK counts visible devices; the place on the node has a variable of its own.
        place = os.environ.get("RAY_LOCAL_RANK") or os.environ.get("LOCAL_RANK")
        return self.rank == 0 or place == "0"

    def _clear(self, temporary: Path) -> None:
        if self._is_node_leader:
            shutil.rmtree(temporary, ignore_errors=True)

    def _write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if self.should_save_model:
            torch.save(model_state(self.model), folder / self._name("model"))
        if self.should_save_optimizer:
            torch.save(optimizer_state(self.model, self.optimizer), folder / self._name("optim"))
        if self.should_save_extra:
            schedule = None if self.lr_scheduler is None else self.lr_scheduler.state_dict()
            torch.save({"lr_scheduler": schedule, "rng": self.get_rng_state()}, folder / self._name("extra_state"))
        if self.rank == 0:
            huggingface = folder / "huggingface"
            (folder / "fsdp_config.json").write_text(json.dumps(asdict(FSDPConfig(2, self.world_size)), indent=2))
            if self.lora_meta is not None:
                (folder / LORA_META_FILE).write_text(json.dumps(self.lora_meta, indent=2))
            write_config(self.model, huggingface)
            copy_side_files(self.model_config.get("path"), huggingface, self.processing_class)

    @staticmethod
    def _publish(temporary: Path, final: Path, mine: bool) -> None:
        if not mine or not temporary.exists():
            return
        if final.exists():
            replaced = final.with_name(f".{final.name}.replaced")
            shutil.rmtree(replaced, ignore_errors=True)
            final.rename(replaced)
            temporary.rename(final)
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            temporary.rename(final)

    def _name(self, part: str) -> str:
        return f"{part}_world_size_{self.world_size}_rank_{self.rank}.pt"

    # ---- load -------------------------------------------------------------------------------------------------------

    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False
    ) -> None:
        """Read this rank's files into model, optimizer, schedule and generators."""
        _refuse_remote(hdfs_path)
        folder = Path(local_path).expanduser().absolute()
        self._check(folder)
        if self.should_load_model:
            load_model_state(self.model, self._read(folder, "model"), str(folder))
        if self.should_load_optimizer:
            load_optimizer_state(self.model, self.optimizer, self._read(folder, "optim"), str(folder))
        if self.should_load_extra:
            # Generator states of NumPy and Python are plain objects, not tensors.
            extra = self._read(folder, "extra_state", weights_only=False)
            self.load_rng_state(extra["rng"])
            if self.lr_scheduler is not None and extra["lr_scheduler"] is not None:
                self.lr_scheduler.load_state_dict(extra["lr_scheduler"])
        if del_local_after_load:
            dist.barrier()
            for part in ("model", "optim", "extra_state"):
                (folder / self._name(part)).unlink(missing_ok=True)

    def _check(self, folder: Path) -> None:
        wanted = {
            "model": self.should_load_model,
            "optim": self.should_load_optimizer,
            "extra_state": self.should_load_extra,
        }
        missing = [
            self._name(part) for part, needed in wanted.items() if needed and not (folder / self._name(part)).is_file()
        ]
        if not missing:
            return
        sizes = sorted({file.name.split("_")[3] for file in folder.glob("model_world_size_*_rank_*.pt")})
        if sizes and str(self.world_size) not in sizes:
            raise CheckpointError(
                "the checkpoint was saved by another number of ranks",
                where=str(folder),
                got=f"{' and '.join(sizes)} ranks",
                expected=f"{self.world_size} ranks",
                remedy="resume with that number of ranks, or merge it (python -m verl.model_merger merge) "
                "and start from the merged model",
            )
        raise CheckpointError("files of the checkpoint are missing", where=str(folder), got="no " + ", ".join(missing))

    def _read(self, folder: Path, part: str, weights_only: bool = True) -> Any:
        path = folder / self._name(part)
        try:
            return torch.load(path, map_location="cpu", weights_only=weights_only)
        except Exception as error:
            raise CheckpointError(f"the file cannot be read ({error})", where=str(path)) from error


def _refuse_remote(hdfs_path: str | None) -> None:
    if hdfs_path:
        raise UnsupportedError(
            "checkpoints are written to file systems only",
            where="trainer.default_hdfs_dir",
            got=hdfs_path,
            remedy="leave it null and copy the folder after the run",
        )
