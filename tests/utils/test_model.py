# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Helpers around Hugging Face models."""

import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2VLConfig, Qwen2VLForConditionalGeneration

from verl.errors import ConfigError
from verl.utils import model as helpers


def test_positions_count_the_valid_tokens() -> None:
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 0, 0, 0]])
    assert helpers.compute_position_id_with_mask(mask=mask).tolist() == [[0, 0, 0, 1, 2], [0, 1, 1, 1, 1]]


def test_a_configuration_is_changed_key_by_key_also_in_its_sections(tiny_model_dir: Path) -> None:
    config = AutoConfig.from_pretrained(tiny_model_dir)
    config.text_config = AutoConfig.from_pretrained(tiny_model_dir)
    config.some_mapping = {"a": 1, "b": 2}
    helpers.update_model_config(
        module_config=config,
        override_config_kwargs={
            "pad_token_id": 7,
            "text_config": {"hidden_size": 5},
            "some_mapping": {"b": 3},
            "mine": 1,
        },
    )
    assert (config.pad_token_id, config.text_config.hidden_size, config.mine) == (7, 5, 1)
    assert config.some_mapping == {"a": 1, "b": 3}
    with pytest.raises(ConfigError, match=r"override_config\.hidden_size"):
        helpers.update_model_config(config, {"hidden_size": {"x": 1}})


def test_sampling_defaults_come_from_their_file_or_from_the_configuration(tiny_model_dir: Path, tmp_path: Path) -> None:
    config = json.loads((tiny_model_dir / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "eos_token_id": 9}))
    assert helpers.get_generation_config(model=str(tmp_path)).eos_token_id == 9
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2], "temperature": 0.5}))
    assert helpers.get_generation_config(str(tmp_path)).eos_token_id == [1, 2]
    assert helpers.get_generation_config(str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("rows", "size"), [(500, (500.0, "")), (2_500, (2.5, "K")), (3_000_000, (3.0, "M")), (2_000_000_000, (2.0, "B"))]
)
def test_the_size_of_a_model_is_told_in_the_largest_scale(
    rows: int, size: tuple[float, str], caplog: pytest.LogCaptureFixture
) -> None:
    module = torch.nn.Linear(1, rows, bias=False, device="meta")
    assert helpers.get_model_size(module) == size
    with caplog.at_level(logging.INFO, logger="verl"):
        helpers.print_model_size(model=module, name="head")
    assert caplog.messages == [f"head contains {size[0]:.2f}{size[1]} parameters"]
    assert helpers.get_model_size(module, scale="M") == (rows / 1e6, "M")


def test_weights_get_the_names_of_the_published_checkpoint(tmp_path: Path) -> None:
    text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {
        "num_key_value_heads": 1,
        "vocab_size": 32,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]},
    }
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2}
    Qwen2VLForConditionalGeneration(Qwen2VLConfig(text_config=text, vision_config=vision)).save_pretrained(tmp_path)
    model = Qwen2VLForConditionalGeneration.from_pretrained(tmp_path)
    published = load_file(tmp_path / "model.safetensors")
    converted = helpers.convert_weight_keys(state_dict=model.state_dict(), model=model)
    assert set(model.state_dict()) != set(published)
    assert set(converted) - {"lm_head.weight"} == set(published) - {"lm_head.weight"}
    assert all(torch.equal(converted[name], value) for name, value in published.items())


def test_a_value_model_gives_one_number_a_token(tiny_model_dir: Path) -> None:
    config = AutoConfig.from_pretrained(tiny_model_dir)
    labels = config.num_labels
    model = helpers.load_valuehead_model(
        local_path=str(tiny_model_dir), torch_dtype=torch.float32, model_config=config, trust_remote_code=False
    )
    assert model(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 1)
    policy = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    assert torch.equal(model.model.embed_tokens.weight, policy.model.embed_tokens.weight)
    assert config.num_labels == labels


def test_pictures_of_several_rows_become_one_input() -> None:
    rows = [{"pixel_values": torch.full((n, 2), float(n)), "grid": torch.tensor([[n]])} for n in (1, 2, 3)]
    rows.insert(1, {"pixel_values": None})
    joined = helpers.extract_multi_modal_inputs(batch_data=rows)
    assert joined["pixel_values"][:, 0].tolist() == [1, 2, 2, 3, 3, 3]
    assert joined["grid"].tolist() == [[1], [2], [3]]
    chosen = helpers.extract_multi_modal_inputs(rows, indices=[3, 0])
    assert chosen["grid"].tolist() == [[3], [1]]
    assert helpers.extract_multi_modal_inputs([{}, {}]) == {}


def test_a_model_that_places_pictures_by_their_bounds_gets_lists() -> None:
    rows = [{"image_bound": torch.tensor([[0, 1]]), "pixel_values": torch.ones(n, 2)} for n in (1, 2)]
    joined = helpers.extract_multi_modal_inputs(rows)
    assert [value.shape[0] for value in joined["pixel_values"]] == [1, 2]
