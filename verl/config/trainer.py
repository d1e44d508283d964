# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The loop: steps, resources, loggers, checkpoints."""

from dataclasses import dataclass, field
from typing import Any

from verl.config.checks import at_least, one_of, refuse
from verl.config.node import Node


@dataclass(frozen=True)
class TrainerConfig(Node):
    """The training loop of every PPO-like trainer."""

    balance_batch: bool = True
    """Spread trajectories over ranks so that each gets the same number of tokens."""
    total_epochs: int = 30
    """Passes over the data."""
    total_training_steps: int | None = None
    """Training steps; null: epochs × steps per epoch."""
    project_name: str = "verl_examples"
    """Name in the trackers and in the output path."""
    experiment_name: str = "gsm8k"
    """Name in the trackers and in the output path."""
    logger: str | list[str] = field(default_factory=lambda: ["console", "wandb"])
    """console, file, tensorboard, wandb, mlflow, swanlab …"""
    log_val_generations: int = 0
    """Validation answers shown in the trackers."""
    rollout_data_dir: str | None = None
    """Directory of rollout dumps (JSONL); null: none."""
    validation_data_dir: str | None = None
    """Directory of validation dumps (JSONL); null: none."""
    nnodes: int = 1
    """Nodes of the trainer's pool."""
    n_gpus_per_node: int = 8
    """Devices per node of that pool; on CPU: ranks."""
    save_freq: int | None = -1
    """Steps (async: versions) between checkpoints, and one at the end; null, 0 or less: none."""
    esi_redundant_time: float = 0
    """Without effect: SIGTERM saves and ends."""
    resume_mode: str = "auto"
    """auto: the newest checkpoint; disable; resume_path: `resume_from_path`."""
    resume_from_path: str | None = None
    """A global_step_N directory."""
    val_before_train: bool = True
    """Validate the start."""
    val_only: bool = False
    """Validate and stop."""
    test_freq: int | None = -1
    """Steps (async: versions) between validations, and one at the end; null, 0 or less: none."""
    critic_warmup: int = 0
    """Steps that train the critic alone."""
    default_hdfs_dir: str | None = None
    """Refused when set."""
    del_local_ckpt_after_load: bool = False
    """Delete a checkpoint once it is loaded."""
    default_local_dir: str = "checkpoints/verl_examples/gsm8k"
    """Directory of everything a run writes; absolute after the front door."""
    max_actor_ckpt_to_keep: int | None = None
    """Checkpoints kept; null, 0 or less: all."""
    max_critic_ckpt_to_keep: int | None = None
    """Without effect: the critic lies in the same checkpoint as the actor."""
    ray_wait_register_center_timeout: int = 300
    """Without effect: there is no register centre."""
    device: str = "cuda"
    """Without effect: the platform is detected; VERL_PLATFORM overrides it."""
    use_legacy_worker_impl: str = "disable"
    """Only disable."""
    seed: int | None = None
    """One seed for data order, mini-batch order, engines and training ranks; null: each its own."""
    wandb_proxy: str | None = None
    """Proxy through which wandb is reached."""
    remove_previous_ckpt_in_save: bool = False
    """Older form of max_actor_ckpt_to_keep=1."""

    def __post_init__(self) -> None:
        at_least(self, 1, "nnodes", "n_gpus_per_node", "total_epochs", "total_training_steps")
        at_least(self, 0, "log_val_generations", "critic_warmup", "esi_redundant_time", "seed")
        one_of(self, "resume_mode", ("auto", "disable", "resume_path"))
        on = None if self.use_legacy_worker_impl in ("disable", "auto") else self.use_legacy_worker_impl
        refuse(on, "use_legacy_worker_impl", "the legacy worker", "set use_legacy_worker_impl=disable")
        refuse(self.default_hdfs_dir, "default_hdfs_dir", "HDFS", "mount it, and set trainer.default_local_dir to it")

    @property
    def num_devices(self) -> int:
        """Ranks of the trainer's pool."""
        return self.nnodes * self.n_gpus_per_node

    @property
    def loggers(self) -> list[str]:
        """`logger` as a list."""
        return [self.logger] if isinstance(self.logger, str) else list(self.logger)


@dataclass(frozen=True)
class RayKwargs(Node):
    """Ray itself."""

    ray_init: dict[str, Any] = field(default_factory=lambda: {"num_cpus": None})
    """Arguments passed on to ray.init."""
    timeline_json_file: str | None = None
    """Without effect: `default_local_dir`/trace holds the spans."""
