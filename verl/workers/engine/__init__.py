# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Training engines; importing this package registers the ones that come with it."""

from verl.workers.engine.base import BaseEngine, EngineRegistry
from verl.workers.engine.fsdp import FSDPEngine, FSDPEngineWithLMHead, FSDPEngineWithValueHead

__all__ = ["BaseEngine", "EngineRegistry", "FSDPEngine", "FSDPEngineWithLMHead", "FSDPEngineWithValueHead"]
