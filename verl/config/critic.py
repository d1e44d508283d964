# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The value model."""

from dataclasses import dataclass, field

from verl.config.actor import LOSS_AGG_MODES
from verl.config.checkpoint import CheckpointConfig
from verl.config.checks import at_least, one_of, refuse
from verl.config.engine import FSDPEngineConfig
from verl.config.model import HFModelConfig
from verl.config.node import Node
from verl.config.optimizer import FSDPOptimizerConfig, OptimizerConfig
from verl.config.profiler import ProfilerConfig


@dataclass(frozen=True)
class CriticConfig(Node):
    """The value update: batch sizes, loss, optimizer."""

    rollout_n: int = 1
    """Trajectories per prompt; follows `actor_rollout_ref.rollout.n`."""
    strategy: str = "fsdp"
    """Training backend; fsdp and fsdp2 both mean FSDP2."""
    enable: bool | None = None
    """null: a critic exists where the advantage estimator needs one (gae)."""
    ppo_mini_batch_size: int = 256
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
    ppo_epochs: int = 1
    """Passes over one batch; follows the actor's."""
    shuffle: bool = False
    """Draw mini-batches in random order; follows the actor's."""
    data_loader_seed: int = 42
    """Seed of that order."""
    cliprange_value: float = 0.5
    """Clip range of the value loss, > 0."""
    loss_agg_mode: str = "token-mean"
    """How token losses become one number; follows the actor's."""
    optim: OptimizerConfig = field(default_factory=FSDPOptimizerConfig)
    """Optimizer and schedule."""
    model: HFModelConfig = field(default_factory=HFModelConfig)
    """The model that the critic starts from."""
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


@dataclass(frozen=True)
class FSDPCriticConfig(CriticConfig):
    """The value update on FSDP2."""

    fsdp: FSDPEngineConfig = field(default_factory=FSDPEngineConfig)
    """The engine."""
    forward_micro_batch_size: int | None = None
    """Refused: counted over all ranks; use `forward_micro_batch_size_per_gpu`."""
    forward_micro_batch_size_per_gpu: int | None = None
    """Trajectories per forward pass on one rank; follows `ppo_micro_batch_size_per_gpu`."""
    ulysses_sequence_parallel_size: int = 1
    """Ranks that share one sequence."""
    grad_clip: float = 1.0
    """Older name of `optim.clip_grad`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "ulysses_sequence_parallel_size", "forward_micro_batch_size_per_gpu")
        refuse(
            self.forward_micro_batch_size,
            "forward_micro_batch_size",
            "a micro-batch counted over all ranks",
            "set forward_micro_batch_size_per_gpu",
        )
