# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Adapters: merged tensors for export, the base model without them, refusals."""

from collections.abc import Iterator

import pytest
import torch
from peft import inject_adapter_in_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from verl.errors import ConfigError, UnsupportedError
from verl.models.lora import adapters_disabled, add_adapters, lora_config, merged_tensors


class OneLinear(nn.Module):
    """A linear layer with weight I(2) and an adapter whose delta is 0.5 everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(2, 2, bias=False)
        self.q_proj.weight.data = torch.eye(2)


@pytest.fixture
def adapted() -> nn.Module:
    config = lora_config({"lora_rank": 1, "lora_alpha": 2, "target_modules": ["q_proj"]})
    model = inject_adapter_in_model(config, OneLinear(), adapter_name="default")
    layer = model.q_proj
    layer.lora_A["default"].weight.data = torch.tensor([[1.0, 1.0]])
    layer.lora_B["default"].weight.data = torch.tensor([[0.25], [0.25]])
    return model


def merged(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return merged_tensors(model, lambda tensor: tensor.detach(), dict(model.named_parameters()))


def test_an_iterator_consumed_later_still_gives_merged_weights(adapted):
    iterator = merged(adapted)
    for _ in range(3):
        adapted.q_proj.base_layer.weight  # noqa: B018 - any use in between
    ((name, tensor),) = iterator
    assert name == "q_proj.weight"
    assert torch.equal(tensor, torch.eye(2) + 0.5)


def test_after_the_export_the_module_is_as_it_was_and_what_was_sent_is_a_copy(adapted):
    ((_, tensor),) = merged(adapted)
    assert torch.equal(adapted.q_proj.base_layer.weight, torch.eye(2))
    tensor.zero_()
    assert torch.equal(adapted.q_proj.base_layer.weight, torch.eye(2))


def test_an_abandoned_export_leaves_the_module_as_it_was(adapted):
    iterator = merged(adapted)
    next(iterator)
    iterator.close()
    assert torch.equal(adapted.q_proj.base_layer.weight, torch.eye(2))
    torch.testing.assert_close(adapted.q_proj(torch.ones(1, 2)), torch.tensor([[2.0, 2.0]]))


def test_merged_tensors_are_those_of_peft_and_carry_the_base_models_names():
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **sizes, **heads))
    names = set(model.state_dict())
    add_adapters(model, lora_config({"lora_rank": 4, "lora_alpha": 8}))
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (".lora_" in name)
        if ".lora_B." in name:
            nn.init.normal_(parameter, std=0.1)
    ours = dict(merged(model))
    assert ours.keys() == names
    layer = model.model.layers[1].mlp.down_proj
    expected = layer.base_layer.weight + layer.get_delta_weight("default")
    torch.testing.assert_close(ours["model.layers.1.mlp.down_proj.weight"], expected.detach())
    assert not torch.equal(ours["model.layers.1.mlp.down_proj.weight"], layer.base_layer.weight)


def test_without_its_adapter_the_model_is_the_base_model_also_after_an_error(adapted):
    ones = torch.ones(1, 2)
    with adapters_disabled(adapted):
        assert torch.equal(adapted.q_proj(ones), ones)
    with pytest.raises(RuntimeError), adapters_disabled(adapted):
        raise RuntimeError
    assert torch.equal(adapted.q_proj(ones), torch.tensor([[2.0, 2.0]]))


def test_rank_zero_means_no_adapter():
    assert lora_config({"lora_rank": 0}) is None
    assert lora_config({}) is None


def test_an_adapter_without_scale_is_refused():
    with pytest.raises(ConfigError, match="lora_alpha"):
        lora_config({"lora_rank": 4, "lora_alpha": 0})


def test_starting_from_a_saved_adapter_is_refused_with_the_way_round():
    with pytest.raises(UnsupportedError, match=r"lora_adapter_path.*model_merger"):
        lora_config({"lora_rank": 4, "lora_adapter_path": "/some/where"})


def test_adapters_that_cannot_be_merged_are_refused():
    model = nn.Sequential()
    model.add_module("wte", nn.Embedding(4, 2))
    with pytest.raises(UnsupportedError, match="target_modules"):
        add_adapters(model, lora_config({"lora_rank": 1, "target_modules": ["wte"]}))
