# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From full tensors to a Hugging Face folder that is checked before it counts; comparison; upload."""

import argparse
import json
import logging
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from verl.errors import CheckpointError
from verl.models.load import build_empty, tied_names
from verl.utils.checkpoint.fsdp_checkpoint_manager import LORA_META_FILE
from verl.utils.checkpoint.hf_export import copy_side_files, write_weights

logger = logging.getLogger(__name__)

Tensors = dict[str, torch.Tensor]
_ADAPTER_PART = ".default.weight"


@dataclass(frozen=True)
class MergeOptions:
    """The command line."""

    local_dir: str
    target_dir: str = "tmp"
    tie_word_embedding: bool = False
    trust_remote_code: bool = False
    is_value_model: bool = False
    merge_adapter: bool = False
    hf_upload_path: str | None = None
    private: bool = False

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> "MergeOptions":
        known = vars(arguments)
        return cls(**{name: known[name] for name in cls.__dataclass_fields__ if known.get(name) is not None})


class BaseModelMerger(ABC):
    """Subclasses read a backend's shards; writing and checking are the same for all."""

    def __init__(self, options: MergeOptions) -> None:
        self.options = options
        self.source = Path(options.local_dir).expanduser() / "huggingface"
        if not (self.source / "config.json").is_file():
            raise CheckpointError("the checkpoint has no configuration", where=str(self.source / "config.json"))
        self.config: PretrainedConfig = AutoConfig.from_pretrained(
            self.source, trust_remote_code=options.trust_remote_code
        )

    @abstractmethod
    def load_full_state(self) -> Tensors:
        """Every tensor in full, under the names that the module had in training."""

    def run_merge(self) -> None:
        """Write weights, configuration, tokenizer (and adapter) to `target_dir`, and upload them if asked."""
        target = Path(self.options.target_dir).expanduser().absolute()
        draft = target / ".writing"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            base, adapter = self._split_adapter(self.load_full_state())
            write_weights(self._published(base).items(), draft)
            shutil.copyfile(self.source / "config.json", draft / "config.json")
            copy_side_files(str(self.source), draft)
            if (self.source / "generation_config.json").is_file():
                shutil.copyfile(self.source / "generation_config.json", draft / "generation_config.json")
            if adapter:
                self._write_adapter(adapter, draft / "lora_adapter")
            check_folder(draft)
            _replace_files(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        logger.info("merged %s into %s", self.options.local_dir, target)
        if self.options.hf_upload_path:
            self._upload(target, self.options.hf_upload_path)

    def run_test(self, hf_dir: str) -> None:
        """Compare names, shapes and values with the weights in `hf_dir`."""
        base, _ = self._split_adapter(self.load_full_state())
        ours, theirs = self._published(base), read_weights(Path(hf_dir).expanduser())
        if ours.keys() != theirs.keys():
            raise CheckpointError("the names differ", where=hf_dir, got=sorted(ours.keys() ^ theirs.keys())[:5])
        wrong = [
            name
            for name, tensor in ours.items()
            if tensor.shape != theirs[name].shape
            or not torch.allclose(tensor.float(), theirs[name].float(), rtol=0, atol=1e-6)
        ]
        if wrong:
            raise CheckpointError(f"{len(wrong)} of {len(ours)} tensors differ", where=hf_dir, got=wrong[:5])
        logger.info("all %d tensors equal those in %s", len(ours), hf_dir)

    # ---- names ------------------------------------------------------------------------------------------------------

    def _published(self, state: Tensors) -> Tensors:
        """The state under published names, tied tensors once."""
        model = self._empty_model()
        tied = model.config.tie_word_embeddings or self.options.tie_word_embedding
        aliases = set(tied_names(model)) if tied else set()
        if self.options.tie_word_embedding:
            aliases.add("lm_head.weight")
        return revert_weight_conversion(model, {name: t for name, t in state.items() if name not in aliases})

    def _empty_model(self) -> PreTrainedModel:
        architectures = self.config.architectures or [""]
        is_value = self.options.is_value_model or architectures[0].endswith("ForTokenClassification")
        kind = "value_model" if is_value else "language_model"
        dtype: Any = self.config.dtype or torch.float32
        return build_empty(self.config, kind, dtype, self.options.trust_remote_code)

    # ---- adapters ---------------------------------------------------------------------------------------------------

    def _split_adapter(self, state: Tensors) -> tuple[Tensors, Tensors]:
        """Base tensors under their own names, and adapter tensors; with `merge_adapter` the base with the adapter."""
        adapter = {name: tensor for name, tensor in state.items() if ".lora_" in name}
        base = {name.replace(".base_layer.", "."): t for name, t in state.items() if name not in adapter}
        if not adapter or not self.options.merge_adapter:
            return base, adapter
        meta = self._lora_meta()
        scale = meta["lora_alpha"] / meta["r"]
        for name, a_ri in adapter.items():
            if ".lora_A." in name:
                b_or = adapter[name.replace(".lora_A.", ".lora_B.")]
                weight = name.split(".lora_A.")[0] + ".weight"
                base[weight] = (base[weight].float() + scale * (b_or.float() @ a_ri.float())).to(base[weight].dtype)
        return base, {}

    def _lora_meta(self) -> dict[str, Any]:
        """Rank and scale as training knew them; without them an adapter is worthless, so nothing is guessed."""
        path = Path(self.options.local_dir).expanduser() / LORA_META_FILE
        try:
            meta = json.loads(path.read_text())
            if int(meta["r"]) <= 0 or float(meta["lora_alpha"]) <= 0:
                raise ValueError(f"r {meta['r']}, lora_alpha {meta['lora_alpha']}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"the adapter's rank and scale cannot be read ({error!r})",
                where=str(path),
                expected='{"r": …, "lora_alpha": …, "task_type": …}',
                remedy="write the file with the values that the run had in model.lora_rank and model.lora_alpha",
            ) from error
        return meta

    def _write_adapter(self, adapter: Tensors, folder: Path) -> None:
        """`adapter_model.safetensors` and `adapter_config.json` as peft reads them."""
        meta = self._lora_meta()
        folder.mkdir(parents=True)
        tensors = {
            f"base_model.model.{name.removesuffix(_ADAPTER_PART)}.weight": tensor.contiguous()
            for name, tensor in adapter.items()
        }
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        task = meta.get("task_type")
        config = {
            "peft_type": "LORA",
            "r": int(meta["r"]),
            "lora_alpha": meta["lora_alpha"],
            "target_modules": sorted({name.split(".lora_")[0].rsplit(".", 1)[-1] for name in adapter}),
            "task_type": None if task in (None, "None") else str(task).removeprefix("TaskType."),
            "base_model_name_or_path": str(Path(self.options.target_dir).expanduser().absolute()),
        }
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2))

    def _upload(self, folder: Path, repo_id: str) -> None:
        api = HfApi()
        api.create_repo(repo_id, private=self.options.private, exist_ok=True)
        api.upload_folder(folder_path=str(folder), repo_id=repo_id, repo_type="model")


def read_weights(folder: Path) -> Tensors:
    """All tensors of a Hugging Face folder."""
    tensors: Tensors = {}
    for path in _weight_files(folder):
        with safe_open(path, framework="pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return sorted({folder / name for name in json.loads(index.read_text())["weight_map"].values()})
    return [folder / "model.safetensors"]


def check_folder(folder: Path) -> None:
    """The configuration parses, and every weight file that there must be exists and can be read."""
    AutoConfig.from_pretrained(folder)
    for path in _weight_files(folder):
        if not path.is_file() or path.stat().st_size == 0:
            raise CheckpointError("a weight file is missing or empty", where=str(path))
        with safe_open(path, framework="pt") as file:
            if not list(file.keys()):
                raise CheckpointError("a weight file holds no tensors", where=str(path))


def _replace_files(draft: Path, target: Path) -> None:
    """Move the new files over old ones; weights of an earlier merge must not stay beside them."""
    for stale in [
        *target.glob("*.safetensors"),
        *target.glob("*.safetensors.index.json"),
        *target.glob("pytorch_model*"),
    ]:
        stale.unlink()
    shutil.rmtree(target / "lora_adapter", ignore_errors=True)
    for path in draft.iterdir():
        path.rename(target / path.name)
