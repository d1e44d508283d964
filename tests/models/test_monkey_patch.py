# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Packed rows without a patch."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from verl.errors import ConfigError, UnsupportedError
from verl.models.transformers.monkey_patch import apply_monkey_patch


def test_sequences_of_one_packed_row_do_not_see_each_other(tiny_model_dir: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, attn_implementation="sdpa", dtype=torch.float32).eval()
    apply_monkey_patch(model=model, ulysses_sp_size=1, use_remove_padding=True, use_fused_kernels=False)
    first, second = torch.tensor([[3, 4, 5]]), torch.tensor([[6, 7, 8, 9]])
    packed = torch.cat([first, second], dim=1)
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
    logits = model(packed, position_ids=positions, use_cache=False).logits
    alone = torch.cat([model(first).logits, model(second).logits], dim=1)
    assert torch.allclose(logits, alone, atol=1e-5)


@pytest.mark.parametrize(
    "setting",
    [{"ulysses_sp_size": 2}, {"use_fused_kernels": True}, {"use_prefix_grouper": True}, {"use_tiled_mlp": True}],
)
def test_what_needs_a_changed_model_is_refused(tiny_model_dir: Path, setting: dict) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    with pytest.raises(UnsupportedError, match=next(iter(setting))):
        apply_monkey_patch(model, **setting)


def test_an_attention_that_mixes_packed_sequences_is_refused(tiny_model_dir: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(ConfigError, match="cannot keep packed sequences apart"):
        apply_monkey_patch(model)
    apply_monkey_patch(model, use_remove_padding=False)
