# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rows in: files, columns, lengths, order."""

from dataclasses import dataclass, field
from typing import Any

from verl.config.checks import at_least, one_of, refuse, require
from verl.config.node import Node


@dataclass(frozen=True)
class CustomClassConfig(Node):
    """A class of yours by file and name."""

    path: str | None = None
    """Python file, or pkg://module."""
    name: str | None = None
    """Class in it."""


@dataclass(frozen=True)
class SamplerConfig(Node):
    """A sampler of yours."""

    class_path: str | None = None
    """Python file, or pkg://module."""
    class_name: str | None = None
    """Class in it."""


@dataclass(frozen=True)
class DatagenConfig(Node):
    """Data sets that grow while training."""

    path: str | None = None
    """Refused when set."""
    name: str | None = None
    """Without effect."""

    def __post_init__(self) -> None:
        refuse(self.path, "path", "a data set that grows while training", "use data.custom_cls or data.sampler")


@dataclass(frozen=True)
class DataConfig(Node):
    """The prompts of reinforcement learning."""

    tokenizer: str | None = None
    """Without effect; use actor_rollout_ref.model.tokenizer_path."""
    use_shm: bool = False
    """Copy the files to /dev/shm before reading."""
    train_files: str | list[str] = "~/data/rlhf/gsm8k/train.parquet"
    """Parquet or JSON files."""
    val_files: str | list[str] | None = "~/data/rlhf/gsm8k/test.parquet"
    """Parquet or JSON files; null: no validation."""
    train_max_samples: int = -1
    """Rows used; -1: all."""
    val_max_samples: int = -1
    """Rows used; -1: all."""
    prompt_key: str = "prompt"
    """Column of chat messages."""
    reward_fn_key: str = "data_source"
    """Column that selects the reward function."""
    max_prompt_length: int = 512
    """Tokens."""
    max_response_length: int = 512
    """Tokens, tool turns included."""
    train_batch_size: int = 1024
    """Prompts per training step; 0 in the fully asynchronous trainer."""
    gen_batch_size: int | None = None
    """Prompts per generation batch; null: train_batch_size; 1 in the fully asynchronous trainer."""
    val_batch_size: int | None = None
    """Prompts per validation batch; null: all at once."""
    tool_config_path: str | None = None
    """Follows rollout.multi_turn.tool_config_path, so that over-long prompts are measured with their tools."""
    return_raw_input_ids: bool = False
    """Without effect: the messages are kept."""
    return_raw_chat: bool = True
    """Without effect: the messages are kept."""
    return_full_prompt: bool = False
    """Without effect: the messages are kept."""
    shuffle: bool = True
    """Random order."""
    seed: int | None = None
    """Seed of that order; null: trainer.seed, else 1."""
    dataloader_num_workers: int = 8
    """Loader processes; 0: in this process."""
    image_patch_size: int = 14
    """Pixels per patch of the vision tower."""
    validation_shuffle: bool = False
    """Random order in validation."""
    filter_overlong_prompts: bool = False
    """Drop prompts longer than max_prompt_length before training."""
    filter_overlong_prompts_workers: int = 1
    """Processes that do it."""
    truncation: str = "error"
    """What becomes of a longer prompt: error, left (keeps the tail), right (the head), middle (both ends)."""
    image_key: str = "images"
    """Column of images."""
    video_key: str = "videos"
    """Column of videos."""
    trust_remote_code: bool = False
    """Run Python code that comes with the tokenizer."""
    custom_cls: CustomClassConfig = field(default_factory=CustomClassConfig)
    """A data-set class of yours."""
    return_multi_modal_inputs: bool = True
    """Without effect: media are processed where they are used."""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    """A sampler of yours (curriculum)."""
    datagen: DatagenConfig = field(default_factory=DatagenConfig)
    """Growing data sets, left out."""
    apply_chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments passed on to the chat template."""
    output_path: str | None = None
    """Parquet file that main_generation_server writes."""
    cache_dir: str = "~/.cache/verl/rlhf"
    """Where remote files are copied to."""
    chat_template_func: str | None = None
    """Refused when set."""
    need_tools_kwargs: bool = False
    """Warn about rows without tools_kwargs."""

    def __post_init__(self) -> None:
        at_least(self, 1, "max_prompt_length", "max_response_length", "val_batch_size")
        at_least(self, 0, "train_batch_size", "dataloader_num_workers")
        remedy = "leave it null to follow train_batch_size"
        ok = self.gen_batch_size is None or self.gen_batch_size >= 1
        require(ok, "gen_batch_size", self.gen_batch_size, "null or at least 1", remedy)
        one_of(self, "truncation", ("error", "left", "right", "middle"))
        remedy = "set actor_rollout_ref.model.custom_chat_template"
        refuse(self.chat_template_func, "chat_template_func", "a function in place of the chat template", remedy)
