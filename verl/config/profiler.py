# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Profilers: which tool, which ranks, which steps."""

from dataclasses import dataclass, field
from typing import Any

from verl.config.checks import one_of, refuse
from verl.config.node import Node


@dataclass(frozen=True)
class NsightToolConfig(Node):
    """Nsight Systems (on ROCm: rocprof takes its place)."""

    discrete: bool | None = False
    """One report per stage instead of one per step; null: as the global profiler."""
    controller_nsight_options: dict[str, Any] = field(default_factory=dict)
    """Options of the controller process, passed on."""
    worker_nsight_options: dict[str, Any] = field(default_factory=dict)
    """Options of the worker processes, passed on."""
    name: str = "nsight"
    """Name of the tool."""


@dataclass(frozen=True)
class NPUToolConfig(Node):
    """Ascend's profiler; without effect on other platforms."""

    contents: list[str] = field(default_factory=list)
    """npu, cpu, memory, shapes, module, stack."""
    level: str = "level0"
    """level_none, level0, level1, level2."""
    analysis: bool = True
    """Analyse the trace at the end."""
    discrete: bool = False
    """One report per stage instead of one per step."""
    name: str = "npu"
    """Name of the tool."""


@dataclass(frozen=True)
class TorchProfilerToolConfig(Node):
    """torch.profiler."""

    contents: list[str] = field(default_factory=list)
    """cuda, cpu, memory, shapes, stack."""
    discrete: bool = False
    """One trace per stage instead of one per step."""
    name: str = "torch"
    """Name of the tool."""


@dataclass(frozen=True)
class TorchMemoryToolConfig(Node):
    """torch's memory history."""

    trace_alloc_max_entries: int = 100_000
    """Allocations kept."""
    stack_depth: int = 32
    """Frames kept per allocation."""
    context: str = "all"
    """Which events carry a stack."""
    stacks: str = "all"
    """python, cpp or all."""
    kw_args: dict[str, Any] = field(default_factory=dict)
    """Further arguments, passed on."""
    name: str = "torch_memory"
    """Name of the tool."""


@dataclass(frozen=True)
class PrecisionDebuggerToolConfig(Node):
    """Ascend's msprobe, left out."""

    config_path: str | None = None
    """File of the tool."""
    steps: list[int] | None = None
    """Steps to record."""
    stages: list[str] | None = None
    """Stages to record."""
    strict: bool = False
    """Stop on a failed record."""
    name: str = "precision_debugger"
    """Name of the tool."""


@dataclass(frozen=True)
class ToolConfigs(Node):
    """Settings per tool; only the chosen tool's are read."""

    nsys: NsightToolConfig = field(default_factory=NsightToolConfig)
    """Nsight Systems."""
    npu: NPUToolConfig = field(default_factory=NPUToolConfig)
    """Ascend."""
    torch: TorchProfilerToolConfig = field(default_factory=TorchProfilerToolConfig)
    """torch.profiler."""
    torch_memory: TorchMemoryToolConfig = field(default_factory=TorchMemoryToolConfig)
    """Memory history."""
    precision_debugger: PrecisionDebuggerToolConfig = field(default_factory=PrecisionDebuggerToolConfig)
    """msprobe."""


@dataclass(frozen=True)
class ProfilerConfig(Node):
    """The profiler of one role, or (with `steps`) of the whole job."""

    tool: str | None = None
    """nsys, torch, torch_memory, or null for none."""
    enable: bool = False
    """This role is profiled."""
    all_ranks: bool = False
    """Every rank, instead of `ranks`."""
    ranks: list[int] = field(default_factory=list)
    """Ranks that are profiled."""
    save_path: str | None = "outputs/profile"
    """Directory of the reports."""
    tool_config: ToolConfigs = field(default_factory=ToolConfigs)
    """Settings per tool."""
    global_tool_config: ToolConfigs = field(default_factory=ToolConfigs)
    """Settings per tool for every role."""
    steps: list[int] | None = None
    """Training steps that are profiled (global profiler only)."""
    profile_continuous_steps: bool = False
    """Neighbouring steps go into one report (global profiler only)."""

    def __post_init__(self) -> None:
        one_of(self, "tool", (None, "nsys", "npu", "torch", "torch_memory", "precision_debugger"))
        refuse(self.tool == "precision_debugger", "tool", "msprobe's precision debugger", "use tool=torch")
