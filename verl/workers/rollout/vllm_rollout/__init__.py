# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rollout by vLLM. Importing this package never imports vLLM."""

import importlib
from typing import Any

_HOMES = {
    "ServerAdapter": "verl.workers.rollout.vllm_rollout.vllm_rollout",
    "vLLMReplica": "verl.workers.rollout.vllm_rollout.vllm_async_server",
    "vLLMHttpServer": "verl.workers.rollout.vllm_rollout.vllm_async_server",
}

__all__ = ["ServerAdapter", "vLLMHttpServer", "vLLMReplica"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
