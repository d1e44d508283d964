# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The value model."""

from dataclasses import dataclass, field
from typing import Any

from verl.base_config import BaseConfig
from verl.config.actor import LOSS_AGG_MODES
from verl.config.batches import check_role
from verl.config.checkpoint import CheckpointConfig
from verl.config.checks import at_least, one_of, refuse
from verl.config.engine import FSDPEngineConfig
from verl.config.model import HFModelConfig
from verl.config.node import Node
from verl.config.optimizer import OptimizerConfig
from verl.config.profiler import ProfilerConfig

INFER_TOKENS = 32768


@dataclass(frozen=True)
class CriticConfig(Node):
    """The value update: batch sizes, loss, optimizer."""

    rollout_n: int = 1
    """Trajectories per prompt; follows `actor_rollout_ref.rollout.n`."""
    strategy: str = "fsdp"
    """Training backend; fsdp and fsdp2 both mean FSDP2."""
    enable: bool | None = None
    """null: a critic exists where the advantage estimator needs one (gae)."""
    ppo_mini_batch_size: int = 1
    """Prompts per optimizer step over all ranks; follows the actor's."""
    ppo_micro_batch_size: int | None = None
    """Refused: counted over all ranks; use `ppo_micro_batch_size_per_gpu`."""
    ppo_micro_batch_size_per_gpu: int | None = None
    """Trajectories per forward and backward pass on one rank, without `use_dynamic_bsz`."""
    use_dynamic_bsz: bool = False
    """Micro-batches by token count; follows the actor's."""
    ppo_max_token_len_per_gpu: int = 32768
    """Tokens in one training micro-batch on one rank, with `use_dynamic_bsz`."""
    forward_max_token_len_per_gpu: int = 32768
    """Tokens in one micro-batch without gradients on one rank."""
    ppo_infer_micro_batch_size_per_gpu: int | None = None
    """Trajectories per pass without gradients; where set, it wins over `forward_micro_batch_size_per_gpu`."""
    ppo_infer_max_token_len_per_gpu: int = INFER_TOKENS
    """Tokens in one such pass; another value than this wins over `forward_max_token_len_per_gpu`."""
    ppo_epochs: int = 1
    """Passes over one batch; follows the actor's."""
    shuffle: bool = True
    """Draw mini-batches in random order; follows the actor's."""
    data_loader_seed: int = 1
    """Seed of that order."""
    cliprange_value: float = 0.5
    """Clip range of the value loss, > 0."""
    loss_agg_mode: str = "token-mean"
    """How token losses become one number; follows the actor's."""
    loss_scale_factor: int | None = None
    """Divisor of seq-mean-token-sum-norm; null: the response length."""
    engine: Any = field(default_factory=BaseConfig, compare=False, repr=False)
    """The engine's section under the name that it has for every backend; on FSDP2 it is `fsdp`."""
    optim: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimizer and schedule."""
    model: HFModelConfig | None = None
    """The model that the critic starts from; a worker needs one."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """What a checkpoint contains."""
    profiler: ProfilerConfig = field(default_factory=ProfilerConfig)
    """The profiler of this role."""

    def __post_init__(self) -> None:
        at_least(self, 1, "ppo_mini_batch_size", "ppo_micro_batch_size_per_gpu", "ppo_epochs", "rollout_n")
        at_least(self, 1, "ppo_max_token_len_per_gpu", "forward_max_token_len_per_gpu")
        at_least(self, 0, "cliprange_value")
        one_of(self, "loss_agg_mode", LOSS_AGG_MODES)
        refuse(
            self.ppo_micro_batch_size,
            "ppo_micro_batch_size",
            "a micro-batch counted over all ranks",
            "set ppo_micro_batch_size_per_gpu",
        )

    def validate(self, n_gpus: int, train_batch_size: int) -> None:
        """Check the batch sizes against a trainer of `n_gpus` ranks and batches of `train_batch_size` prompts.

        `train_batch_size` 0: prompts stream one by one.

        Raises
        ------
        ConfigError
            naming the key to change.
        """
        check_role(self, n_gpus, train_batch_size, self.model is not None and self.model.use_remove_padding)


@dataclass(frozen=True)
class FSDPCriticConfig(CriticConfig):
    """The value update on FSDP2."""

    fsdp: FSDPEngineConfig = field(default_factory=FSDPEngineConfig)
    """The engine."""
    forward_micro_batch_size: int | None = 1
    """Above 1 refused: counted over all ranks; use `forward_micro_batch_size_per_gpu`."""
    forward_micro_batch_size_per_gpu: int | None = 1
    """Trajectories per forward pass on one rank; follows `ppo_micro_batch_size_per_gpu`."""
    ulysses_sequence_parallel_size: int = 1
    """Ranks that share one sequence."""
    grad_clip: float = 1.0
    """Older name of `optim.clip_grad`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "ulysses_sequence_parallel_size", "forward_micro_batch_size_per_gpu")
        object.__setattr__(self, "engine", self.fsdp)
        refuse(
            (self.forward_micro_batch_size or 1) != 1,
            "forward_micro_batch_size",
            "a micro-batch counted over all ranks",
            "set forward_micro_batch_size_per_gpu",
        )
