# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Profilers that a configuration starts: left out; the sections are accepted while they are off."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from verl.config.checks import one_of, refuse
from verl.config.node import Node
from verl.errors import ConfigError


@dataclass(frozen=True)
class NsightToolConfig(Node):
    """Nsight Systems (on ROCm: rocprof takes its place)."""

    discrete: bool | None = False
    """Without effect."""
    controller_nsight_options: dict[str, Any] = field(default_factory=dict)
    """Without effect."""
    worker_nsight_options: dict[str, Any] = field(default_factory=dict)
    """Without effect."""
    name: str = "nsight"
    """Without effect."""


@dataclass(frozen=True)
class NPUToolConfig(Node):
    """Ascend's profiler; without effect on other platforms."""

    contents: list[str] = field(default_factory=list)
    """Without effect."""
    level: str = "level0"
    """Without effect."""
    analysis: bool = True
    """Without effect."""
    discrete: bool = False
    """Without effect."""
    name: str = "npu"
    """Without effect."""


@dataclass(frozen=True)
class TorchProfilerToolConfig(Node):
    """torch.profiler."""

    contents: list[str] = field(default_factory=list)
    """Without effect."""
    discrete: bool = False
    """Without effect."""
    name: str = "torch"
    """Without effect."""


@dataclass(frozen=True)
class TorchMemoryToolConfig(Node):
    """torch's memory history."""

    trace_alloc_max_entries: int = 100_000
    """Without effect."""
    stack_depth: int = 32
    """Without effect."""
    context: str = "all"
    """Without effect."""
    stacks: str = "all"
    """Without effect."""
    kw_args: dict[str, Any] = field(default_factory=dict)
    """Without effect."""
    name: str = "torch_memory"
    """Without effect."""


@dataclass(frozen=True)
class PrecisionDebuggerToolConfig(Node):
    """Ascend's msprobe, left out."""

    config_path: str | None = None
    """Without effect."""
    steps: list[int] | None = None
    """Without effect."""
    stages: list[str] | None = None
    """Without effect."""
    strict: bool = False
    """Without effect."""
    name: str = "precision_debugger"
    """Without effect."""


@dataclass(frozen=True)
class ToolConfigs(Node):
    """Settings per tool; only the chosen tool's are read."""

    nsys: NsightToolConfig = field(default_factory=NsightToolConfig)
    """Without effect."""
    npu: NPUToolConfig = field(default_factory=NPUToolConfig)
    """Without effect."""
    torch: TorchProfilerToolConfig = field(default_factory=TorchProfilerToolConfig)
    """Without effect."""
    torch_memory: TorchMemoryToolConfig = field(default_factory=TorchMemoryToolConfig)
    """Without effect."""
    precision_debugger: PrecisionDebuggerToolConfig = field(default_factory=PrecisionDebuggerToolConfig)
    """Without effect."""


@dataclass(frozen=True)
class ProfilerConfig(Node):
    """The profiler of one role, or (with `steps`) of the whole job."""

    tool: str | None = None
    """Without effect."""
    enable: bool = False
    """Refused when true."""
    all_ranks: bool = False
    """Without effect."""
    ranks: list[int] = field(default_factory=list)
    """Without effect."""
    save_path: str | None = "outputs/profile"
    """Without effect."""
    tool_config: ToolConfigs = field(default_factory=ToolConfigs)
    """Without effect."""
    global_tool_config: ToolConfigs = field(default_factory=ToolConfigs)
    """Without effect."""
    steps: list[int] | None = None
    """Refused when set."""
    profile_continuous_steps: bool = False
    """Without effect."""

    def __post_init__(self) -> None:
        one_of(self, "tool", (None, "nsys", "npu", "torch", "torch_memory", "precision_debugger"))
        remedy = "read the spans in default_local_dir/trace, or start the job under the profiler"
        refuse(self.enable, "enable", "a profiler started by the configuration", remedy)
        refuse(self.steps, "steps", "a profiler started by the configuration", remedy)

    def union(self, other: "ProfilerConfig") -> "ProfilerConfig":
        """On the ranks of either; both must use one tool."""
        return self._combined(other, self.enable or other.enable, self.all_ranks or other.all_ranks, set.union)

    def intersect(self, other: "ProfilerConfig") -> "ProfilerConfig":
        """On the ranks of both; both must use one tool."""
        mine, yours = (None if config.all_ranks else set(config.ranks) for config in (self, other))
        return self._combined(
            other,
            self.enable and other.enable,
            self.all_ranks and other.all_ranks,
            lambda a, b: b if mine is None else a if yours is None else a & b,
        )

    def _combined(
        self, other: "ProfilerConfig", enable: bool, all_ranks: bool, join: Callable[[set[int], set[int]], set[int]]
    ) -> "ProfilerConfig":
        if self.tool != other.tool:
            raise ConfigError("two profilers cannot run together", where="tool", got=other.tool, expected=self.tool)
        return replace(self, enable=enable, all_ranks=all_ranks, ranks=sorted(join(set(self.ranks), set(other.ranks))))
