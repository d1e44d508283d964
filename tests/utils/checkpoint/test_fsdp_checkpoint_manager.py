# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Files of one rank: written beside their place, published by rename, read back or refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

from verl.errors import CheckpointError, ConfigError, UnsupportedError
from verl.quickstart.model import save_tiny_model
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.distributed import initialize_global_process_group
from verl.workers.engine.fsdp.state import iterate_full_tensors


@pytest.fixture(autouse=True)
def process_group() -> None:
    initialize_global_process_group()


def manager_of(model: nn.Module, source: str | None, **contents: list[str]) -> FSDPCheckpointManager:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    return FSDPCheckpointManager(
        model,
        optimizer,
        scheduler,
        checkpoint_config=contents,
        model_config={"path": source},
        export=lambda: iterate_full_tensors(model),
    )


def tiny(directory: Path) -> nn.Module:
    return AutoModelForCausalLM.from_pretrained(directory)


def one_step(manager: FSDPCheckpointManager, model: nn.Module) -> None:
    model(torch.arange(2, 8)[None]).logits.square().mean().backward()
    manager.optimizer.step()
    manager.lr_scheduler.step()
    manager.optimizer.zero_grad()


def test_model_moments_and_schedule_come_back(tiny_model_dir, tmp_path):
    model = tiny(tiny_model_dir)
    manager = manager_of(model, str(tiny_model_dir))
    one_step(manager, model)
    manager.save_checkpoint(str(tmp_path / "global_step_1"), global_step=1)
    other = tiny(tiny_model_dir)
    fresh = manager_of(other, str(tiny_model_dir))
    fresh.load_checkpoint(str(tmp_path / "global_step_1"))
    assert fresh.lr_scheduler.get_last_lr() == [0.05]
    one_step(manager, model)
    one_step(fresh, other)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))


def test_a_parameter_that_never_had_a_gradient_starts_fresh(tiny_model_dir, tmp_path):
    def build() -> tuple[nn.Module, FSDPCheckpointManager]:
        model = tiny(tiny_model_dir)
        model.unused = nn.Parameter(torch.ones(3))
        return model, manager_of(model, str(tiny_model_dir))

    model, manager = build()
    one_step(manager, model)
    manager.save_checkpoint(str(tmp_path / "s"))
    other, fresh = build()
    fresh.load_checkpoint(str(tmp_path / "s"))
    assert other.unused not in fresh.optimizer.state
    trained, reloaded = model.model.norm.weight, other.model.norm.weight
    assert torch.equal(fresh.optimizer.state[reloaded]["exp_avg"], manager.optimizer.state[trained]["exp_avg"])
    other.unused.grad = torch.ones(3)
    one_step(fresh, other)
    assert fresh.optimizer.state[other.unused]["step"] == 1


def test_a_tied_head_is_written_once_and_is_tied_again_after_loading(tiny_model_dir, tmp_path):
    model = tiny(tiny_model_dir)
    manager_of(model, str(tiny_model_dir), save_contents=["model", "hf_model"]).save_checkpoint(str(tmp_path / "s"))
    saved = torch.load(tmp_path / "s" / "model_world_size_1_rank_0.pt", weights_only=True)
    assert "lm_head.weight" not in saved
    again = tiny(tmp_path / "s" / "huggingface")
    assert again.lm_head.weight.data_ptr() == again.model.embed_tokens.weight.data_ptr()


def test_an_untied_head_is_written_beside_the_embedding(tmp_path):
    save_tiny_model(tmp_path / "untied", tie_word_embeddings=False)
    model = tiny(tmp_path / "untied")
    contents = ["model", "hf_model"]
    manager_of(model, str(tmp_path / "untied"), save_contents=contents).save_checkpoint(str(tmp_path / "s"))
    saved = torch.load(tmp_path / "s" / "model_world_size_1_rank_0.pt", weights_only=True)
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= saved.keys()
    again = tiny(tmp_path / "s" / "huggingface")
    assert again.lm_head.weight.data_ptr() != again.model.embed_tokens.weight.data_ptr()
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)


def test_the_exported_folder_holds_what_the_base_model_came_with(tiny_model_dir, tmp_path):
    model = tiny(tiny_model_dir)
    source = tmp_path / "base"
    shutil.copytree(tiny_model_dir, source)
    (source / "modeling_own.py").write_text("x = 1\n")
    manager_of(model, str(source), save_contents=["hf_model"]).save_checkpoint(str(tmp_path / "s"))
    exported = {path.name for path in (tmp_path / "s" / "huggingface").iterdir()}
    assert {path.name for path in source.iterdir()} == exported


def test_the_exported_configuration_names_the_model_and_not_its_sharded_form(tiny_model_dir, tmp_path):
    model = tiny(tiny_model_dir)
    name = type(model).__name__
    fully_shard(model)
    assert type(model).__name__ != name
    manager_of(model, str(tiny_model_dir), save_contents=["hf_model"]).save_checkpoint(str(tmp_path / "s"))
    config = json.loads((tmp_path / "s" / "huggingface" / "config.json").read_text())
    assert config["architectures"] == [name]


@pytest.mark.parametrize("source", ["", None, "/no/such/model", "nobody/nothing"])
def test_missing_side_files_never_fail_a_checkpoint(tiny_model_dir, tmp_path, source):
    model = tiny(tiny_model_dir)
    model.generation_config.temperature = -1.0
    manager_of(model, source, save_contents=["hf_model"]).save_checkpoint(str(tmp_path / "s"))
    assert (tmp_path / "s" / "huggingface" / "model.safetensors").is_file()


def test_large_models_are_written_in_shards_with_an_index(tiny_model_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("verl.utils.checkpoint.hf_export._SHARD_BYTES", 600_000)
    model = tiny(tiny_model_dir)
    manager_of(model, str(tiny_model_dir), save_contents=["hf_model"]).save_checkpoint(str(tmp_path / "s"))
    folder = tmp_path / "s" / "huggingface"
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2 and not (folder / "model.safetensors").exists()
    again = tiny(folder)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))


def test_an_interrupted_save_leaves_nothing_behind_that_counts(tiny_model_dir, tmp_path, monkeypatch):
    model = tiny(tiny_model_dir)
    manager = manager_of(model, str(tiny_model_dir))
    manager.save_checkpoint(str(tmp_path / "global_step_1"), max_ckpt_to_keep=1)
    real_save = torch.save

    def half(state: object, path: Path) -> None:
        if "optim" in path.name:
            raise OSError(28, "No space left on device")
        real_save(state, path)

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(CheckpointError, match="No space left"):
        manager.save_checkpoint(str(tmp_path / "global_step_2"), max_ckpt_to_keep=1)
    assert not (tmp_path / "global_step_2").exists() and (tmp_path / "global_step_1").exists()
    monkeypatch.undo()
    manager.save_checkpoint(str(tmp_path / "global_step_2"), max_ckpt_to_keep=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_2"]


def test_saving_over_an_existing_step_replaces_it(tiny_model_dir, tmp_path):
    model = tiny(tiny_model_dir)
    manager = manager_of(model, str(tiny_model_dir))
    manager.save_checkpoint(str(tmp_path / "s"))
    (tmp_path / "s" / "stale").touch()
    manager.save_checkpoint(str(tmp_path / "s"))
    assert [path.name for path in tmp_path.iterdir()] == ["s"] and not (tmp_path / "s" / "stale").exists()


def test_a_missing_file_is_named(tiny_model_dir, tmp_path):
    model = tiny(tiny_model_dir)
    manager = manager_of(model, str(tiny_model_dir))
    manager.save_checkpoint(str(tmp_path / "s"))
    (tmp_path / "s" / "optim_world_size_1_rank_0.pt").unlink()
    with pytest.raises(CheckpointError, match=r"no optim_world_size_1_rank_0.pt"):
        manager.load_checkpoint(str(tmp_path / "s"))


def test_a_damaged_file_is_named(tiny_model_dir, tmp_path):
    model = tiny(tiny_model_dir)
    manager = manager_of(model, str(tiny_model_dir))
    manager.save_checkpoint(str(tmp_path / "s"))
    path = tmp_path / "s" / "model_world_size_1_rank_0.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"model_world_size_1_rank_0.pt"):
        manager.load_checkpoint(str(tmp_path / "s"))


def test_a_checkpoint_of_another_model_is_refused(tiny_model_dir, tmp_path):
    model = tiny(tiny_model_dir)
    manager_of(model, str(tiny_model_dir)).save_checkpoint(str(tmp_path / "s"))
    save_tiny_model(tmp_path / "wide", hidden=64)
    with pytest.raises(CheckpointError, match=r"shape of model.embed_tokens.weight differs"):
        manager_of(tiny(tmp_path / "wide"), None).load_checkpoint(str(tmp_path / "s"))
    save_tiny_model(tmp_path / "deep", layers=3)
    with pytest.raises(CheckpointError, match=r"another model.*model.layers.2"):
        manager_of(tiny(tmp_path / "deep"), None).load_checkpoint(str(tmp_path / "s"))


def test_files_can_be_deleted_once_they_are_loaded(tiny_model_dir, tmp_path):
    model = tiny(tiny_model_dir)
    manager = manager_of(model, str(tiny_model_dir))
    manager.save_checkpoint(str(tmp_path / "s"))
    manager.load_checkpoint(str(tmp_path / "s"), del_local_after_load=True)
    assert not list((tmp_path / "s").glob("*.pt"))


def test_a_remote_folder_is_refused(tiny_model_dir, tmp_path):
    with pytest.raises(UnsupportedError, match="default_hdfs_dir"):
        manager_of(tiny(tiny_model_dir), None).save_checkpoint(str(tmp_path / "s"), "hdfs://somewhere")


def test_hf_model_needs_something_that_gives_full_tensors(tiny_model_dir, tmp_path):
    manager = FSDPCheckpointManager(tiny(tiny_model_dir), checkpoint_config={"save_contents": ["model", "hf_model"]})
    with pytest.raises(ConfigError, match=r"hf_model.*export="):
        manager.save_checkpoint(str(tmp_path / "s"))
    assert not list(tmp_path.iterdir())
