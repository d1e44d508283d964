# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Configurations and weights from a path; names of tied and of differently stored tensors."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from own_code_model import save_own_code_model
from transformers import AutoConfig, AutoModelForCausalLM

from verl.errors import ConfigError, UnsupportedError
from verl.models.attention import choose_attention, wants_single_row
from verl.models.load import build_empty, checkpoint_entries, load_config, load_full
from verl.models.value_head import configure_value_model, value_head
from verl.utils.tokenizer import load_tokenizer_and_processor

TINY_MOE = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "moe_intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}


def config_of(path: Path, **override: object):
    return load_config(str(path), attention="sdpa", override=override)


def test_an_empty_model_has_the_names_shapes_and_ties_of_the_full_one(tiny_model_dir):
    config = config_of(tiny_model_dir)
    empty = build_empty(config, "language_model", torch.float32, False)
    full = load_full(str(tiny_model_dir), config, "language_model", torch.float32, False)
    assert {n: p.shape for n, p in empty.named_parameters()} == {n: p.shape for n, p in full.named_parameters()}
    assert all(parameter.is_meta for parameter in empty.parameters())
    assert empty.get_input_embeddings().weight is empty.get_output_embeddings().weight


def test_overrides_are_merged_into_what_is_there(tiny_model_dir):
    before = config_of(tiny_model_dir)
    after = config_of(tiny_model_dir, max_position_embeddings=64, rope_parameters={"rope_theta": 5.0})
    assert after.max_position_embeddings == 64
    assert after.rope_parameters == {**before.rope_parameters, "rope_theta": 5.0}
    assert config_of(tiny_model_dir, rope_theta=7.0).rope_parameters["rope_theta"] == 7.0


def test_an_unknown_override_is_answered_with_the_known_keys(tiny_model_dir):
    with pytest.raises(ConfigError, match=r"unknown key 'max_positions'.*max_position_embeddings"):
        config_of(tiny_model_dir, max_positions=64)


def test_a_cache_is_never_kept_while_training(tiny_model_dir):
    assert config_of(tiny_model_dir).use_cache is False


def test_a_value_model_has_one_output(tiny_model_dir):
    config = config_of(tiny_model_dir)
    configure_value_model(config)
    model = build_empty(config, "value_model", torch.float32, False)
    assert value_head(model).out_features == 1


def test_a_model_without_a_value_head_is_refused(tiny_model_dir):
    model = build_empty(config_of(tiny_model_dir), "language_model", torch.float32, False)
    with pytest.raises(UnsupportedError, match=r"no value head"):
        value_head(model)


def test_a_family_without_a_token_classifier_is_refused_by_name(tmp_path):
    AutoConfig.for_model("mamba", vocab_size=40, hidden_size=16, num_hidden_layers=1).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedError, match="AutoModelForTokenClassification for 'mamba'"):
        build_empty(config_of(tmp_path), "value_model", torch.float32, False)


def test_experts_stored_together_in_memory_go_out_under_their_published_names(tmp_path):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3_moe", **TINY_MOE))
    model.save_pretrained(tmp_path / "moe")
    from safetensors.torch import load_file

    published = load_file(tmp_path / "moe" / "model.safetensors")
    loaded = load_full(str(tmp_path / "moe"), config_of(tmp_path / "moe"), "language_model", torch.float32, False)
    exported = {
        published_name: value
        for name, tensor in loaded.state_dict().items()
        for published_name, value in checkpoint_entries(loaded, name, tensor)
    }
    assert any(".experts.3.down_proj" in name for name in published)
    assert exported.keys() == published.keys()
    assert all(torch.equal(exported[name], tensor) for name, tensor in published.items())


def test_the_platform_chooses_the_attention_unless_the_user_does():
    assert choose_attention(None, default="flash_attention_2", device_type="cuda") == "flash_attention_2"
    assert choose_attention("eager", default="sdpa", device_type="cpu") == "eager"
    assert wants_single_row("flash_attention_2") and not wants_single_row("sdpa")


def test_attention_that_mixes_packed_sequences_or_cannot_run_here_is_refused():
    with pytest.raises(ConfigError, match="keep packed sequences apart"):
        choose_attention("flex_attention", default="sdpa", device_type="cuda")
    with pytest.raises(ConfigError, match="does not run on a CPU"):
        choose_attention("flash_attention_2", default="sdpa", device_type="cpu")


def load_elsewhere(section: DictConfig, answers: Any) -> None:
    """What an actor does with the section it is sent: it loads by path and flag."""
    config = load_config(section.path, attention="sdpa", trust_remote_code=section.trust_remote_code)
    tokenizer, processor = load_tokenizer_and_processor(section)
    model = load_full(section.path, config, "language_model", torch.float32, section.trust_remote_code)
    answers.put((type(config).__name__, type(model).__name__, len(tokenizer), processor))


def test_a_model_with_python_files_of_its_own_is_loaded_by_another_process_that_is_told_where_it_is(
    tiny_model_dir, tmp_path, monkeypatch
):
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    path = save_own_code_model(tiny_model_dir, tmp_path / "own")
    section = OmegaConf.create({"path": str(path), "trust_remote_code": True, "custom_chat_template": None})
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=load_elsewhere, args=(section, answers))
    process.start()
    answer = answers.get(timeout=240)
    process.join(60)
    vocabulary = config_of(tiny_model_dir).vocab_size
    assert answer == ("OwnConfig", "OwnForCausalLM", vocabulary, None) and process.exitcode == 0


def test_files_that_are_not_trusted_are_not_run_and_the_key_is_named(tiny_model_dir, tmp_path):
    path = save_own_code_model(tiny_model_dir, tmp_path / "own")
    (path / "configuration_own.py").write_text("raise SystemExit('run')")
    with pytest.raises(ConfigError, match=r"set actor_rollout_ref\.model\.trust_remote_code=true"):
        config_of(path)
