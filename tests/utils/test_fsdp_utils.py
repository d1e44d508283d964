# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sharding helpers in a process group of one; two ranks are in tests/special_distributed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.tensor import DTensor, Shard
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from verl.errors import ConfigError, UnsupportedError
from verl.utils import fsdp_utils
from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group
from verl.workers.fsdp_workers import create_device_mesh, get_sharding_strategy, get_vl_model_vision_tower


@pytest.fixture(scope="module", autouse=True)
def process_group() -> Iterator[None]:
    initialize_global_process_group()
    yield
    destroy_global_process_group()


@pytest.fixture
def model(tiny_model_dir: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)


@pytest.fixture
def sharded(model: PreTrainedModel) -> PreTrainedModel:
    fsdp_utils.apply_fsdp2(model, {"mesh": create_device_mesh(world_size=1, fsdp_size=-1)}, {})
    return model


def test_each_block_and_the_rest_are_sharded_and_the_model_still_computes(
    tiny_model_dir: Path, sharded: nn.Module
) -> None:
    plain = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    ids = torch.tensor([[1, 2, 3, 4]])
    assert fsdp_utils.fsdp_version(sharded) == 2 and fsdp_utils.fsdp_version(plain) == 0
    assert all(isinstance(layer, fsdp_utils.FSDPModule) for layer in sharded.model.layers)
    assert torch.allclose(sharded(ids).logits, plain(ids).logits, atol=1e-6)


def test_the_layers_to_shard_can_be_named(model: PreTrainedModel) -> None:
    config = {"wrap_policy": {"transformer_layer_cls_to_wrap": ["Qwen2MLP"]}}
    fsdp_utils.apply_fsdp2(model, {"mesh": create_device_mesh(1, -1)}, config)
    assert isinstance(model.model.layers[0].mlp, fsdp_utils.FSDPModule)
    assert not isinstance(model.model.layers[0], fsdp_utils.FSDPModule)


def test_a_whole_state_dict_fills_the_sharded_model_and_its_buffers(model: PreTrainedModel) -> None:
    ids = torch.tensor([[1, 2, 3, 4]])
    expected, full_state = model(ids).logits, model.state_dict()
    fsdp_utils.apply_fsdp2(model, {"mesh": create_device_mesh(1, -1)}, {})
    fsdp_utils.fsdp2_load_full_state_dict(model, full_state, device_mesh=None, cpu_offload=None)
    assert torch.allclose(model(ids).logits, expected, atol=1e-6)


def test_gradients_are_clipped_to_their_norm_over_all_of_them(sharded: PreTrainedModel) -> None:
    sharded(torch.tensor([[1, 2, 3, 4]])).logits.square().sum().backward()
    gradients = [p.grad.full_tensor().double() for p in sharded.parameters()]
    expected = torch.cat([grad.flatten() for grad in gradients]).norm()
    norm = fsdp_utils.fsdp2_clip_grad_norm_(sharded.parameters(), max_norm=0.5)
    assert not isinstance(norm, DTensor) and torch.allclose(norm.double(), expected)
    after = torch.cat([p.grad.full_tensor().flatten() for p in sharded.parameters()]).norm()
    assert torch.allclose(after, torch.tensor(0.5), atol=1e-4)
    with pytest.raises(RuntimeError, match="non-finite"):
        next(iter(sharded.parameters())).grad.mul_(float("nan"))
        fsdp_utils.fsdp2_clip_grad_norm_(sharded.parameters(), 0.5, error_if_nonfinite=True)


def test_moving_out_and_back_changes_no_value(sharded: PreTrainedModel) -> None:
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=1e-2)
    fsdp_utils.offload_fsdp_optimizer(optimizer)
    ids = torch.tensor([[1, 2, 3, 4]])
    sharded(ids).logits.sum().backward()
    optimizer.step()
    before = sharded(ids).logits
    state = {key: value.clone() for key, value in next(iter(optimizer.state.values())).items()}
    fsdp_utils.offload_fsdp_model_to_cpu(sharded)
    fsdp_utils.offload_fsdp_optimizer(optimizer)
    fsdp_utils.load_fsdp_model_to_gpu(sharded)
    fsdp_utils.load_fsdp_optimizer(optimizer, device_id=0)
    assert torch.equal(sharded(ids).logits, before)
    after = next(iter(optimizer.state.values()))
    assert all(
        torch.equal(getattr(after[key], "_local_tensor", after[key]), getattr(value, "_local_tensor", value))
        for key, value in state.items()
    )


def test_a_module_of_fsdp1_is_not_moved() -> None:
    wrapped = FullyShardedDataParallel(nn.Linear(2, 2), device_id=torch.device("cpu"))
    assert fsdp_utils.fsdp_version(wrapped) == 1
    for move in (fsdp_utils.offload_fsdp_model_to_cpu, fsdp_utils.load_fsdp_model_to_gpu):
        with pytest.raises(UnsupportedError, match="apply_fsdp2"):
            move(wrapped)


def test_the_wrap_policy_of_fsdp1_takes_the_models_blocks(model: PreTrainedModel) -> None:
    policy = fsdp_utils.get_fsdp_wrap_policy(module=model, config=None)
    wrapped = FullyShardedDataParallel(
        model, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True
    )
    inner = [m for m in wrapped.modules() if isinstance(m, FullyShardedDataParallel)][1:]
    assert [type(m.module).__name__ for m in inner] == ["Qwen2DecoderLayer"] * len(model.model.layers)


def test_the_wrap_policy_can_go_by_name_by_size_or_off(model: PreTrainedModel) -> None:
    def chosen(config: dict, module: nn.Module, numel: int = 0) -> bool:
        return fsdp_utils.get_fsdp_wrap_policy(model, config)(module, recurse=False, nonwrapped_numel=numel)

    layer = model.model.layers[0]
    by_name = {"transformer_layer_cls_to_wrap": ["Qwen2MLP"]}
    assert chosen(by_name, layer.mlp) and not chosen(by_name, layer)
    by_size = {"min_num_params": 100}
    assert chosen(by_size, layer, numel=100) and not chosen(by_size, layer, numel=99)
    assert fsdp_utils.get_fsdp_wrap_policy(model, {"disable": True}) is None
    assert fsdp_utils.get_fsdp_wrap_policy(nn.Linear(2, 2)) is None
    with pytest.raises(ConfigError, match="Qwen2MLP"):
        fsdp_utils.get_fsdp_wrap_policy(model, {"transformer_layer_cls_to_wrap": ["NoSuchLayer"]})


def test_with_an_adapter_its_layers_are_units_of_their_own(model: PreTrainedModel) -> None:
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    policy = fsdp_utils.get_fsdp_wrap_policy(adapted, is_lora=True)
    q_proj = adapted.base_model.model.model.layers[0].self_attn.q_proj
    assert policy(q_proj.lora_A["default"], recurse=False, nonwrapped_numel=1)
    assert not policy(q_proj.base_layer, recurse=False, nonwrapped_numel=1)


def test_rank_zero_builds_the_model_with_values(tiny_model_dir: Path) -> None:
    with fsdp_utils.get_init_weight_context_manager(use_meta_tensor=True, mesh=None)():
        model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    layer = nn.Linear(2, 2)
    assert fsdp_utils.init_fn(layer) is layer


def test_without_parameter_memory_buffers_keep_their_values(tiny_model_dir: Path) -> None:
    with fsdp_utils._without_parameter_memory():
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tiny_model_dir))
    assert {p.device.type for p in model.parameters()} == {"meta"}
    plain = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tiny_model_dir))
    assert torch.equal(model.model.rotary_emb.inv_freq, plain.model.rotary_emb.inv_freq)
    assert nn.Linear(2, 2).weight.device.type == "cpu"


def test_the_dimension_to_shard_is_the_first_that_divides() -> None:
    place = fsdp_utils.get_shard_placement_fn(fsdp_size=4)
    assert place(torch.empty(8, 3)) == Shard(0)
    assert place(torch.empty(6, 3, 8)) == Shard(2)
    assert place(torch.empty(5)) == Shard(0)


def test_the_strategy_of_fsdp1_follows_the_mesh() -> None:
    flat = init_device_mesh("cpu", (1,))
    nested = init_device_mesh("cpu", (1, 1), mesh_dim_names=("ddp", "fsdp"))
    assert get_sharding_strategy(flat) == ShardingStrategy.FULL_SHARD
    assert get_sharding_strategy(flat, zero3_enable=False) == ShardingStrategy.SHARD_GRAD_OP
    assert get_sharding_strategy(nested) == ShardingStrategy.HYBRID_SHARD
    assert get_sharding_strategy(nested, zero3_enable=False) == ShardingStrategy._HYBRID_SHARD_ZERO2


def test_the_vision_tower_is_found_where_models_keep_it(model: PreTrainedModel) -> None:
    whole, inner = nn.Module(), nn.Module()
    whole.visual = nn.Linear(1, 1)
    inner.model = nn.Module()
    inner.model.vision_tower = nn.Linear(1, 1)
    assert get_vl_model_vision_tower(whole) is whole.visual
    assert get_vl_model_vision_tower(inner) is inner.model.vision_tower
    assert get_vl_model_vision_tower(model) is None


@pytest.fixture
def adapted(model: PreTrainedModel) -> nn.Module:
    return get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))


@pytest.mark.parametrize("layered", [False, True])
def test_the_adapter_is_collected_by_pefts_names(adapted: nn.Module, layered: bool) -> None:
    found = fsdp_utils.collect_lora_params(module=adapted, layered_summon=layered, base_sync_done=True)
    layer = adapted.base_model.model.model.layers[0].self_attn.q_proj
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    assert torch.equal(found[name], layer.lora_A["default"].weight)
    assert len(found) == 4 * len(adapted.base_model.model.model.layers)
    assert found.keys() == fsdp_utils.layered_summon_lora_params(adapted).keys()


def test_the_base_model_is_collected_by_its_own_names(tiny_model_dir: Path, adapted: nn.Module) -> None:
    found = fsdp_utils.collect_lora_params(adapted, layered_summon=False, base_sync_done=False)
    plain = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32).state_dict()
    assert found.keys() == plain.keys()
    assert all(torch.equal(found[name], value) for name, value in plain.items())


def test_a_model_without_adapter_is_refused(model: PreTrainedModel) -> None:
    with pytest.raises(ConfigError, match="no adapter"):
        fsdp_utils.collect_lora_params(model, False, True)


def test_layers_that_an_engine_wraps_for_adapters_are_renamed() -> None:
    config = LoraConfig(target_modules=["my_proj"], exclude_modules=["o_proj"])
    layer = "model.layers.0.self_attn"
    assert fsdp_utils.replace_lora_wrapper(f"{layer}.q_proj.weight", config) == f"{layer}.q_proj.base_layer.weight"
    assert fsdp_utils.replace_lora_wrapper(f"{layer}.q_proj.bias", config) == f"{layer}.q_proj.base_layer.bias"
    assert fsdp_utils.replace_lora_wrapper(f"{layer}.my_proj.weight", config) == f"{layer}.my_proj.base_layer.weight"
    for name in (f"{layer}.o_proj.weight", "model.norm.weight", "model.embed_tokens.weight", f"{layer}.scale"):
        assert fsdp_utils.replace_lora_wrapper(name, config) == name
