# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Shards to a Hugging Face folder, by the command that users type."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from verl.errors import CheckpointError
from verl.model_merger.__main__ import main
from verl.model_merger.fsdp_model_merger import merge_tensor, rank_files
from verl.utils.distributed import initialize_global_process_group
from verl.workers.engine import EngineRegistry


def shards(full: torch.Tensor, mesh_shape: tuple[int, ...], placements: tuple[Any, ...]) -> list[DTensor]:
    """What each rank of a mesh holds of `full`, as torch saves it; no process group is needed for that."""
    world = torch.arange(torch.Size(mesh_shape).numel()).view(mesh_shape)
    meta = TensorMeta(full.shape, full.stride(), full.dtype)
    parts = []
    for rank in range(world.numel()):
        local = full
        for dim, placement in enumerate(placements):
            if isinstance(placement, Shard):
                place = (world == rank).nonzero()[0][dim]
                pieces = local.chunk(mesh_shape[dim], placement.dim)
                local = pieces[place] if place < len(pieces) else local.narrow(placement.dim, 0, 0)
        mesh = DeviceMesh("cpu", world, _init_backend=False, _rank=rank)
        parts.append(DTensor(local.clone(), DTensorSpec(mesh, placements, tensor_meta=meta), requires_grad=False))
    return parts


@pytest.mark.parametrize("rows, world", [(4, 2), (5, 3), (2, 3), (7, 4)])
def test_even_uneven_and_empty_shards_are_joined(rows, world):
    full = torch.arange(rows * 3.0).view(rows, 3)
    assert torch.equal(merge_tensor("w", shards(full, (world,), (Shard(0),))), full)


def test_hybrid_shards_are_joined_once_and_their_copies_compared():
    full = torch.arange(8.0).view(4, 2)
    parts = shards(full, (2, 2), (Replicate(), Shard(0)))
    assert torch.equal(merge_tensor("w", parts), full)
    parts[3]._local_tensor += 1
    with pytest.raises(CheckpointError, match="copies of w differ"):
        merge_tensor("w", parts)


@pytest.mark.parametrize("buffer", [torch.tensor(7.0), torch.tensor([3.0])])
def test_replicated_buffers_are_taken_once(buffer):
    """Neither concatenated nor refused for having no dimension."""
    assert torch.equal(merge_tensor("b", [buffer, buffer.clone()]), buffer)
    with pytest.raises(CheckpointError, match="copies of b differ"):
        merge_tensor("b", [buffer, buffer + 1])


def test_a_missing_rank_is_named(tmp_path):
    for rank in (0, 2):
        (tmp_path / f"model_world_size_3_rank_{rank}.pt").touch()
    with pytest.raises(CheckpointError, match="no model_world_size_3_rank_1"):
        rank_files(tmp_path)
    with pytest.raises(CheckpointError, match="no model shards"):
        rank_files(tmp_path / "elsewhere")


@pytest.fixture
def saved(tiny_model_dir: Path, tmp_path: Path) -> Callable[..., tuple[Path, dict[str, torch.Tensor]]]:
    """`saved(model_type=…, model={…})`: a checkpoint of one rank, and the weights that it must give."""

    def save(model_type: str = "language_model", model: dict[str, Any] | None = None):
        initialize_global_process_group()
        engine = EngineRegistry.new(
            model_type,
            "fsdp",
            model_config={"path": str(tiny_model_dir), **(model or {})},
            engine_config={},
            optimizer_config={"lr": 1e-2},
        )
        engine.initialize()
        for name, parameter in engine.module.named_parameters():
            if ".lora_B." in name:
                torch.nn.init.normal_(parameter.to_local(), std=0.1)
        engine.save_checkpoint(str(tmp_path / "checkpoint"))
        return tmp_path / "checkpoint", {n: t.clone() for n, t in engine.get_per_tensor_param()[0]}

    return save


def merge(folder: Path, target: Path, *options: str) -> int:
    return main(["merge", "--backend", "fsdp", "--local_dir", str(folder), "--target_dir", str(target), *options])


def test_a_merged_checkpoint_is_a_model_for_transformers(saved, tmp_path):
    folder, weights = saved()
    assert merge(folder, tmp_path / "merged") == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    named = dict(model.named_parameters())
    assert named.keys() == weights.keys()
    assert all(torch.equal(named[name], tensor) for name, tensor in weights.items())
    assert {"tokenizer.json", "generation_config.json"} <= {path.name for path in (tmp_path / "merged").iterdir()}
    assert "lm_head.weight" not in load_file(tmp_path / "merged" / "model.safetensors")


def test_a_checkpoint_of_plain_tensors_is_merged_as_well(saved, tmp_path):
    folder, weights = saved()
    path = folder / "model_world_size_1_rank_0.pt"
    plain = {
        name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        for name, tensor in torch.load(path, weights_only=False).items()
    }
    assert not any(isinstance(tensor, DTensor) for tensor in plain.values())
    torch.save(plain, path)
    assert merge(folder, tmp_path / "merged") == 0
    named = dict(AutoModelForCausalLM.from_pretrained(tmp_path / "merged").named_parameters())
    assert all(torch.equal(named[name], tensor) for name, tensor in weights.items())


def test_shards_and_copies_of_one_checkpoint_are_each_treated_as_what_they_are(tmp_path):
    full = torch.arange(16.0).view(4, 4)
    for rank, part in enumerate(shards(full, (2,), (Shard(0),))):
        state = {"w": part, "scale": torch.tensor(7.0), "bias": torch.tensor([3.0])}
        torch.save(state, tmp_path / f"model_world_size_2_rank_{rank}.pt")
    ranks = [torch.load(path, weights_only=False) for path in rank_files(tmp_path)]
    merged = {name: merge_tensor(name, [rank[name] for rank in ranks]) for name in ranks[0]}
    assert {name: tensor.shape for name, tensor in merged.items()} == {"w": (4, 4), "scale": (), "bias": (1,)}
    assert torch.equal(merged["w"], full) and merged["scale"] == 7 and merged["bias"].tolist() == [3.0]


def test_a_critic_keeps_its_head(saved, tmp_path):
    folder, weights = saved(model_type="value_model")
    assert merge(folder, tmp_path / "merged", "--is-value-model") == 0
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "merged")
    assert torch.equal(model.score.weight, weights["score.weight"])


def test_an_adapter_is_written_beside_its_base_with_its_scale(saved, tmp_path):
    folder, weights = saved(model={"lora_rank": 8, "lora_alpha": 16})
    assert merge(folder, tmp_path / "merged") == 0
    config = json.loads((tmp_path / "merged" / "lora_adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["task_type"]) == (8, 16, "CAUSAL_LM")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    model = PeftModel.from_pretrained(base, tmp_path / "merged" / "lora_adapter").merge_and_unload()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.data, weights[name], rtol=0, atol=1e-6, msg=name)


def test_an_adapter_can_be_folded_into_the_weights(saved, tmp_path):
    folder, weights = saved(model={"lora_rank": 8, "lora_alpha": 16})
    assert merge(folder, tmp_path / "merged", "--merge-adapter") == 0
    assert not (tmp_path / "merged" / "lora_adapter").exists()
    merged = load_file(tmp_path / "merged" / "model.safetensors")
    assert merged.keys() == weights.keys()
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, weights[name], rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize(
    "task, written", [("CAUSAL_LM", "CAUSAL_LM"), ("TaskType.CAUSAL_LM", "CAUSAL_LM"), (None, None)]
)
def test_any_form_of_the_task_type_is_read(saved, tmp_path, task, written):
    folder, _ = saved(model={"lora_rank": 2, "lora_alpha": 4})
    (folder / "lora_train_meta.json").write_text(json.dumps({"r": 2, "lora_alpha": 4, "task_type": task}))
    assert merge(folder, tmp_path / "merged") == 0
    assert (
        json.loads((tmp_path / "merged" / "lora_adapter" / "adapter_config.json").read_text())["task_type"] == written
    )


@pytest.mark.parametrize("meta", [None, "{", '{"r": 8}', '{"r": 8, "lora_alpha": 0}'])
def test_an_adapter_whose_scale_is_unknown_stops_the_merge(saved, tmp_path, caplog, meta):
    folder, _ = saved(model={"lora_rank": 8, "lora_alpha": 16})
    path = folder / "lora_train_meta.json"
    path.unlink() if meta is None else path.write_text(meta)
    assert merge(folder, tmp_path / "merged") == 1
    assert not list((tmp_path / "merged").iterdir())


def test_weights_of_an_earlier_merge_do_not_count_as_success(saved, tmp_path, monkeypatch):
    folder, _ = saved()
    assert merge(folder, tmp_path / "merged") == 0
    for broken in (lambda tensors, target: None, lambda tensors, target: (target / "model.safetensors").touch()):
        monkeypatch.setattr("verl.model_merger.base_model_merger.write_weights", broken)
        assert merge(folder, tmp_path / "merged") == 1


def test_an_index_that_names_a_missing_shard_is_a_failure(saved, tmp_path, monkeypatch):
    folder, _ = saved()

    def incomplete(tensors: Any, target: Path) -> None:
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
        (target / "model.safetensors.index.json").write_text(json.dumps(index))

    monkeypatch.setattr("verl.model_merger.base_model_merger.write_weights", incomplete)
    assert merge(folder, tmp_path / "merged") == 1


def test_a_new_merge_leaves_no_shards_of_the_old_one(saved, tmp_path):
    folder, _ = saved()
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "model-00001-of-00002.safetensors").touch()
    (tmp_path / "merged" / "notes.txt").touch()
    assert merge(folder, tmp_path / "merged") == 0
    names = {path.name for path in (tmp_path / "merged").iterdir()}
    assert "model-00001-of-00002.safetensors" not in names and "notes.txt" in names


def test_the_comparison_tells_equal_from_different(saved, tmp_path, tiny_model_dir):
    folder, _ = saved()
    compare = ["test", "--backend", "fsdp", "--local_dir", str(folder), "--test_hf_dir"]
    assert main([*compare, str(tiny_model_dir)]) == 0
    other = tmp_path / "other"
    shutil.copytree(tiny_model_dir, other)
    model = AutoModelForCausalLM.from_pretrained(other)
    model.model.norm.weight.data[0] += 1e-3
    model.save_pretrained(other)
    assert main([*compare, str(other)]) == 1


def test_megatron_checkpoints_are_refused(saved):
    folder, _ = saved()
    assert main(["merge", "--backend", "megatron", "--local_dir", str(folder)]) == 1
