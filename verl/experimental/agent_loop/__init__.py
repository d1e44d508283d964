# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Prompt to trajectory: agent loops, the workers that run them, and the manager that spreads prompts over workers."""

import importlib
from typing import Any

_HOMES = {
    "AgentLoopBase": "agent_loop",
    "AgentLoopMetrics": "agent_loop",
    "AgentLoopOutput": "agent_loop",
    "AgentLoopManager": "manager",
    "AgentLoopWorker": "worker",
    "AsyncLLMServerManager": "agent_loop",
    "GroupMeta": "trajectory",
    "SingleTurnAgentLoop": "single_turn_agent_loop",
    "ToolAgentLoop": "tool_agent_loop",
    "Trajectory": "trajectory",
    "get_trajectory_info": "agent_loop",
    "register": "agent_loop",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # Lazy: processes that only count trajectories import `trajectory` from here and must not load a tokenizer.
    if name not in _HOMES:
        raise AttributeError(f"module 'verl.experimental.agent_loop' has no attribute {name!r}")
    return getattr(importlib.import_module(f"verl.experimental.agent_loop.{_HOMES[name]}"), name)
