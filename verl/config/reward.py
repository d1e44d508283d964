# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rewards: function, manager, model, sandbox."""

from dataclasses import dataclass, field
from typing import Any

from verl.config.checks import at_least, one_of, refuse, require
from verl.config.node import Node
from verl.config.rollout import RolloutConfig


@dataclass(frozen=True)
class ModuleConfig(Node):
    """A class by module and name."""

    path: str | None = None
    """Python file, or pkg://module."""
    name: str | None = None
    """Class in it."""


@dataclass(frozen=True)
class RewardFunctionConfig(Node):
    """A reward function of yours: compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs)."""

    path: str | None = None
    """Python file, or pkg://module; null: the built-in function of the row's data_source."""
    name: str | None = "compute_score"
    """Function in it; sync or async, a number or a dict with `score`."""
    reward_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments passed on to it."""


@dataclass(frozen=True)
class RewardManagerConfig(Node):
    """What calls the reward function."""

    source: str = "register"
    """register: by name; importlib: from `module`."""
    name: str = "naive"
    """Name in the registry: naive, dapo, gdpo, rate_limited, remote."""
    module: ModuleConfig = field(default_factory=lambda: ModuleConfig(name="custom_reward_manager"))
    """With source=importlib: file and class."""

    def __post_init__(self) -> None:
        one_of(self, "source", ("register", "importlib"))
        if self.source == "importlib":
            require(self.module.path is not None, "module.path", None, "a Python file or pkg://module")


@dataclass(frozen=True)
class SandboxFusionConfig(Node):
    """A Sandbox Fusion service that runs code."""

    url: str | None = None
    """Address; null: none."""
    max_concurrent: int = 64
    """Requests in flight over all workers."""
    memory_limit_mb: int = 1024
    """Memory of one execution, MB."""

    def __post_init__(self) -> None:
        at_least(self, 1, "max_concurrent", "memory_limit_mb")


@dataclass(frozen=True)
class RewardModelConfig(Node):
    """A model that scores, behind rollout servers of its own."""

    enable: bool = False
    """Refused when true."""
    enable_resource_pool: bool = False
    """Without effect."""
    n_gpus_per_node: int = 8
    """Without effect."""
    nnodes: int = 0
    """Without effect."""
    model_path: str | None = None
    """Without effect."""
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    """Without effect."""

    def __post_init__(self) -> None:
        remedy = "ask a server of yours from reward.custom_reward_function (it may be async)"
        refuse(self.enable, "enable", "a reward model behind servers of the trainer's", remedy)


@dataclass(frozen=True)
class RewardConfig(Node):
    """From trajectory to number."""

    num_workers: int = 8
    """Reward worker processes, ≥ 1."""
    on_error: str | float = "drop_sample"
    """A reward function that raises: drop_sample, drop_group, or a number that stands for the reward."""
    custom_reward_function: RewardFunctionConfig = field(default_factory=RewardFunctionConfig)
    """A reward function of yours."""
    reward_manager: RewardManagerConfig = field(default_factory=RewardManagerConfig)
    """What calls it."""
    reward_model: RewardModelConfig = field(default_factory=RewardModelConfig)
    """A model that scores."""
    sandbox_fusion: SandboxFusionConfig | None = field(default_factory=SandboxFusionConfig)
    """A service that runs code; null: off."""
    reward_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the manager; for dapo max_resp_len and overlong_buffer_cfg."""
    max_concurrent: int | None = None
    """rate_limited: calls in flight; null: no limit."""
    max_rpm: int | None = None
    """rate_limited: requests per minute."""
    max_tpm: int | None = None
    """rate_limited: tokens per minute."""
    estimated_tokens_per_request: int = 2000
    """rate_limited: tokens that one request is taken to cost."""
    timeout: float = 300.0
    """Seconds that one call may take."""

    def __post_init__(self) -> None:
        at_least(self, 1, "num_workers", "max_concurrent", "max_rpm", "max_tpm", "estimated_tokens_per_request")
        number = isinstance(self.on_error, int | float)
        ok = number or self.on_error in ("drop_sample", "drop_group")
        require(ok, "on_error", self.on_error, "drop_sample, drop_group or a number")
