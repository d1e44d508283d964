# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Configurations of the supervised trainer and of offline evaluation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from omegaconf import DictConfig

from verl.config.aliases import apply_aliases
from verl.config.checkpoint import CheckpointConfig
from verl.config.checks import at_least, one_of
from verl.config.data import CustomClassConfig
from verl.config.engine import FSDPEngineConfig
from verl.config.model import HFModelConfig
from verl.config.node import Node
from verl.config.optimizer import FSDPOptimizerConfig
from verl.config.profiler import ProfilerConfig
from verl.config.reward import RewardConfig
from verl.config.run import build_section, resolve, yaml_engine, yaml_model, yaml_optimizer
from verl.config.trainer import RayKwargs


@dataclass(frozen=True)
class SFTDataConfig(Node):
    """Conversations in."""

    train_batch_size: int = 256
    """Conversations per optimizer step over all ranks."""
    micro_batch_size_per_gpu: int = 4
    """Conversations per forward and backward pass on one rank, without `use_dynamic_bsz`."""
    max_token_len_per_gpu: int = 8192
    """Tokens in one micro-batch on one rank, with `use_dynamic_bsz`."""
    use_dynamic_bsz: bool = True
    """Micro-batches by token count."""
    train_files: str | list[str] = "~/data/gsm8k/train.parquet"
    """Parquet files."""
    val_files: str | list[str] | None = None
    """Parquet files; null: no validation."""
    train_max_samples: int = -1
    """Rows used; -1: all."""
    val_max_samples: int = -1
    """Rows used; -1: all."""
    messages_key: str = "messages"
    """Column of chat messages."""
    tools_key: str = "tools"
    """Column of tool schemas."""
    enable_thinking_key: str = "enable_thinking"
    """Column that switches thinking per row."""
    enable_thinking_default: str | bool | None = "none"
    """Value where the column is missing; none: leave it to the template."""
    pad_mode: str = "no_padding"
    """no_padding or right."""
    max_length: int = 1024
    """Tokens of one conversation."""
    truncation: str = "error"
    """What becomes of a longer one: error, left, right."""
    balance_dp_token: bool = False
    """Spread tokens evenly over ranks."""
    custom_cls: CustomClassConfig = field(default_factory=CustomClassConfig)
    """A data-set class of yours."""
    use_shm: bool = False
    """Copy the files to /dev/shm before reading."""
    apply_chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments passed on to the chat template."""
    num_workers: int = 8
    """Loader processes."""
    ignore_input_ids_mismatch: bool = False
    """Accept a template whose turns do not add up to the whole."""

    def __post_init__(self) -> None:
        at_least(self, 1, "train_batch_size", "micro_batch_size_per_gpu", "max_token_len_per_gpu", "max_length")
        one_of(self, "truncation", ("error", "left", "right"))
        one_of(self, "pad_mode", ("no_padding", "right"))


@dataclass(frozen=True)
class SFTTrainerConfig(Node):
    """The supervised loop."""

    default_local_dir: str = "checkpoints/gsm8k-sft/test"
    """Directory of everything a run writes; absolute after the front door."""
    default_hdfs_dir: str | None = None
    """Without effect; mount it and set default_local_dir."""
    project_name: str = "gsm8k-sft"
    """Name in the trackers and in the output path."""
    experiment_name: str = "test"
    """Name in the trackers and in the output path."""
    total_epochs: int = 4
    """Passes over the data."""
    total_training_steps: int | None = None
    """Optimizer steps; null: epochs × steps per epoch."""
    logger: str | list[str] = field(default_factory=lambda: ["console", "wandb"])
    """console, file, tensorboard, wandb …"""
    seed: int = 1
    """Seed of the order and of the ranks."""
    save_freq: int | str = -1
    """Steps between checkpoints; -1: only at the end; after_each_epoch."""
    test_freq: int | str = -1
    """Steps between validations; -1: only at the end; after_each_epoch."""
    max_ckpt_to_keep: int | None = None
    """Checkpoints kept; null: all."""
    balance_batch: bool = True
    """Spread conversations over ranks so that each gets the same number of tokens."""
    resume_mode: str = "auto"
    """auto: the newest checkpoint; disable; resume_path: `resume_from_path`."""
    resume_from_path: str | None = None
    """A global_step_N directory."""
    device: str = "cuda"
    """Without effect: the platform is detected; VERL_PLATFORM overrides it."""
    nnodes: int = 1
    """Nodes."""
    n_gpus_per_node: int = 1
    """Devices per node; on CPU: ranks."""
    profile_interval: list[int] = field(default_factory=lambda: [-1, -1])
    """First and last step profiled; -1: none."""

    def __post_init__(self) -> None:
        at_least(self, 1, "nnodes", "n_gpus_per_node", "total_epochs", "total_training_steps", "max_ckpt_to_keep")
        one_of(self, "resume_mode", ("auto", "disable", "resume_path"))

    @property
    def loggers(self) -> list[str]:
        """`logger` as a list."""
        return [self.logger] if isinstance(self.logger, str) else list(self.logger)


@dataclass(frozen=True)
class SFTRunConfig(Node):
    """Everything a supervised run is told."""

    model: HFModelConfig = field(default_factory=yaml_model)
    """The model."""
    engine: FSDPEngineConfig = field(default_factory=yaml_engine)
    """The engine."""
    optim: FSDPOptimizerConfig = field(default_factory=yaml_optimizer)
    """Optimizer and schedule."""
    profiler: ProfilerConfig = field(default_factory=ProfilerConfig)
    """The profiler."""
    data: SFTDataConfig = field(default_factory=SFTDataConfig)
    """Conversations."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """What a checkpoint contains."""
    trainer: SFTTrainerConfig = field(default_factory=SFTTrainerConfig)
    """The loop."""
    raw: dict[str, Any] = field(default_factory=dict)
    """The resolved plain tree."""


@dataclass(frozen=True)
class EvalDataConfig(Node):
    """Answers in."""

    path: str = "/tmp/math_Qwen2-7B-Instruct.parquet"
    """Parquet file."""
    prompt_key: str = "prompt"
    """Column of prompts."""
    response_key: str = "responses"
    """Column of answers: a list per row."""
    data_source_key: str = "data_source"
    """Column that selects the reward function."""
    reward_model_key: str = "reward_model"
    """Column with the ground truth."""


@dataclass(frozen=True)
class EvalRunConfig(Node):
    """Everything an offline evaluation is told."""

    data: EvalDataConfig = field(default_factory=EvalDataConfig)
    """Answers."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Rewards; the root `custom_reward_function` ends up here."""
    ray_kwargs: RayKwargs = field(default_factory=RayKwargs)
    """Ray."""
    raw: dict[str, Any] = field(default_factory=dict)
    """The resolved plain tree."""


def build_sft_config(
    config: DictConfig | Mapping[str, Any], unknown: Literal["error", "keep"] = "error"
) -> SFTRunConfig:
    """The typed configuration of a supervised run."""
    tree = resolve(config)
    apply_aliases(tree)
    return build_section(SFTRunConfig, tree, unknown)


def build_eval_config(
    config: DictConfig | Mapping[str, Any], unknown: Literal["error", "keep"] = "error"
) -> EvalRunConfig:
    """The typed configuration of an offline evaluation."""
    return build_section(EvalRunConfig, resolve(config), unknown)
