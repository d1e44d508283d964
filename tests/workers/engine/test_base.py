# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Engines by name."""

import pytest

from verl.errors import UnsupportedError
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead, FSDPEngineWithValueHead


@pytest.mark.parametrize("backend", ["fsdp", "fsdp2"])
def test_both_names_mean_fsdp2(backend):
    assert EngineRegistry.get_engine_cls("language_model", backend) is FSDPEngineWithLMHead
    assert EngineRegistry.get_engine_cls("value_model", backend) is FSDPEngineWithValueHead


def test_a_backend_that_is_left_out_is_refused_with_what_to_use():
    with pytest.raises(UnsupportedError, match=r"megatron.*use strategy=fsdp"):
        EngineRegistry.new("language_model", "megatron", model_config={}, engine_config={})
