# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 engine: the same code over NCCL, RCCL, HCCL and gloo."""

from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead, FSDPEngineWithValueHead

__all__ = ["FSDPEngine", "FSDPEngineWithLMHead", "FSDPEngineWithValueHead"]
