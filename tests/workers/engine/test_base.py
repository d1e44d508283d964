# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Engines by name."""

import pytest

from verl.errors import UnsupportedError
from verl.workers.engine import BaseEngine, EngineRegistry, FSDPEngineWithLMHead, FSDPEngineWithValueHead


@pytest.mark.parametrize("backend", ["fsdp", "fsdp2"])
def test_both_names_mean_fsdp2(backend):
    assert EngineRegistry.get_engine_cls("language_model", backend) is FSDPEngineWithLMHead
    assert EngineRegistry.get_engine_cls("value_model", backend) is FSDPEngineWithValueHead


def test_a_backend_that_is_left_out_is_refused_with_what_to_use():
    with pytest.raises(UnsupportedError, match=r"megatron.*use strategy=fsdp"):
        EngineRegistry.new("language_model", "megatron", model_config={}, engine_config={})


def test_an_engine_of_ones_own_that_keeps_no_copies_says_what_to_implement():
    own = type("Own", (BaseEngine,), dict.fromkeys(BaseEngine.__abstractmethods__))()
    # The worker asks every engine for it; None is never taken for the name of weights.
    assert own.weights_id is None
    for use in (own.save_model_to_cpu, own.restore_model_from_cpu, own.clear_cpu_model):
        with pytest.raises(UnsupportedError, match=r"(?s)Own.*implement save_model_to_cpu"):
            use(0)
