# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""FLOPs against hand-counted layers, and utilisation of known and unknown devices."""

import math
import types

import pytest
from transformers import CONFIG_MAPPING

from verl.workers.engine.flops import FlopsCounter, get_device_flops, model_flops_utilization

LENGTHS = [100, 300]
TOKENS, PAIRS = 400, 100**2 + 300**2


def config(kind: str, **kwargs):
    small = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 1000}
    return CONFIG_MAPPING[kind](**(small | kwargs))


def expected(params_per_token: float, attention: float) -> float:
    return 6 * params_per_token * TOKENS + attention


def test_a_dense_model_with_grouped_queries() -> None:
    model = config("qwen2", num_key_value_heads=2, intermediate_size=200)
    layer = 64 * 64 * 2 + 64 * 16 * 2 * 2 + 3 * 64 * 200
    assert FlopsCounter(model).training_flops(LENGTHS) == expected(3 * layer + 2 * 64000, 12 * 3 * 64 * PAIRS)


def test_a_mixture_counts_the_chosen_experts() -> None:
    model = config(
        "qwen3_moe", num_key_value_heads=4, head_dim=16, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32
    )
    model.mlp_only_layers, model.intermediate_size = [0], 100
    attention, experts = 4 * 64 * 64, 64 * 8 + 2 * 3 * 64 * 32
    params = 3 * attention + 3 * 64 * 100 + 2 * experts + 2 * 64000
    assert FlopsCounter(model).training_flops(LENGTHS) == expected(params, 12 * 3 * 64 * PAIRS)


def test_latent_attention_and_shared_experts() -> None:
    model = config(
        "deepseek_v3",
        q_lora_rank=24,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=10,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_shared_experts=1,
        moe_intermediate_size=32,
        intermediate_size=100,
        first_k_dense_replace=1,
    )
    attention = 24 * (64 + 4 * 12) + 64 * (16 + 4) + 16 * 4 * (8 + 10) + 4 * 10 * 64
    params = 3 * attention + 3 * 64 * 100 + 2 * (64 * 8 + 3 * 64 * 3 * 32) + 2 * 64000
    assert FlopsCounter(model).training_flops(LENGTHS) == expected(params, 6 * 3 * 4 * (12 + 10) * PAIRS)


def test_sliding_windows_and_images() -> None:
    text = types.SimpleNamespace(
        model_type="apertus",
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=100,
        vocab_size=1000,
        sliding_window=50,
        layer_types=["sliding_attention", "full_attention"],
    )
    params = 2 * (4 * 64 * 64 + 2 * 64 * 100) + 2 * 64000
    pairs = PAIRS + 50 * TOKENS
    assert FlopsCounter(text).training_flops(LENGTHS) == expected(params, 12 * 64 * pairs)
    vision = types.SimpleNamespace(hidden_size=32, depth=2, intermediate_size=48, patch_size=7, spatial_merge_size=2)
    counter = FlopsCounter(types.SimpleNamespace(text_config=text, vision_config=vision))
    tower = 2 * (4 * 32**2 + 2 * 32 * 48) + 3 * 49 * 32 + (128**2 + 128 * 64) / 4
    extra = 6 * tower * 80 + 12 * 2 * 32 * 80**2
    assert counter.training_flops(LENGTHS, [80]) == pytest.approx(expected(params, 12 * 64 * pairs) + extra)
    assert counter.training_flops(LENGTHS) == expected(params, 12 * 64 * pairs)


@pytest.mark.parametrize(
    "kind",
    [
        "llama",
        "mistral",
        "qwen2_5_vl",
        "qwen3",
        "qwen3_vl",
        "qwen3_vl_moe",
        "qwen2_moe",
        "gemma3",
        "gpt_oss",
        "glm4_moe",
        "mixtral",
        "seed_oss",
    ],
)
def test_every_family_can_be_read(kind: str) -> None:
    assert FlopsCounter(CONFIG_MAPPING[kind]()).training_flops([10], [4]) > 0


def test_utilisation_is_a_share_of_the_peak() -> None:
    counter = FlopsCounter(config("qwen2", intermediate_size=200))
    achieved, peak = counter.estimate_flops(LENGTHS, 2.0)
    assert achieved == pytest.approx(counter.training_flops(LENGTHS) / 2e12)
    share = model_flops_utilization(counter, LENGTHS, 2.0, num_devices=4)
    assert share == pytest.approx(achieved / peak / 4)
    assert model_flops_utilization(counter, LENGTHS, 2.0, 4, forward_only=True) == pytest.approx(share / 3)
    assert counter.estimate_flops(LENGTHS, 0.0)[0] == 0.0
    assert model_flops_utilization(counter, LENGTHS, 0.0) is None


def test_an_unknown_device_or_model_gives_no_nan() -> None:
    for name in ("AMD Instinct MI300X", "MI300X OAM", "AMD Instinct MI325X"):
        assert get_device_flops("T", name) == pytest.approx(1307.4)
    assert get_device_flops("P", "MI300X") == pytest.approx(1.3074)
    assert get_device_flops("T", "unknown") == math.inf and 5.0 / get_device_flops("T", "unknown") == 0.0
    odd = FlopsCounter(types.SimpleNamespace(model_type="odd"))
    assert odd.estimate_flops([10], 1.0)[0] == 0.0 and model_flops_utilization(odd, [10], 1.0) is None
