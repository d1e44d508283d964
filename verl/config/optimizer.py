# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Optimizer and learning-rate schedule."""

from dataclasses import dataclass
from typing import Any

from verl.config.checks import at_least, between, one_of
from verl.config.node import Node


@dataclass(frozen=True)
class OptimizerConfig(Node):
    """What every training backend's optimizer takes."""

    lr: float = 1e-3
    """Peak learning rate, ≥ 0."""
    lr_warmup_steps_ratio: float = 0.0
    """Share of the training steps spent warming up, 0 to 1; used where `lr_warmup_steps` is not positive."""
    total_training_steps: int = -1
    """Optimizer steps of the schedule; -1: the trainer works it out."""
    weight_decay: float = 0.01
    """Decoupled weight decay, ≥ 0."""
    lr_warmup_steps: int | None = -1
    """Optimizer steps of linear warm-up; -1: use the ratio."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decay rates."""
    clip_grad: float = 1.0
    """Largest global gradient norm, > 0; older name: `actor.grad_clip`."""
    grad_clip: float | None = None
    """Older name of `clip_grad`."""

    def __post_init__(self) -> None:
        at_least(self, 0, "lr", "weight_decay", "clip_grad")
        between(self, 0, 1, "lr_warmup_steps_ratio")


@dataclass(frozen=True)
class FSDPOptimizerConfig(OptimizerConfig):
    """An optimizer class by name, and a constant or cosine schedule."""

    optimizer: str = "AdamW"
    """Class name inside `optimizer_impl`."""
    optimizer_impl: str = "torch.optim"
    """Module of the class: torch.optim, torchao.optim, bitsandbytes.optim, or a module of yours."""
    min_lr_ratio: float | None = None
    """Lowest learning rate of the cosine schedule as a share of `lr`, 0 to 1; null: 0."""
    warmup_style: str | None = None
    """Older name of `lr_scheduler_type`."""
    lr_scheduler_type: str = "constant"
    """constant or cosine, after the warm-up."""
    num_cycles: float = 0.5
    """Periods of the cosine; 0.5 falls once from the peak to the minimum."""
    override_optimizer_config: dict[str, Any] | None = None
    """Keyword arguments passed on to the optimizer class."""
    zero_indexed_step: bool = True
    """The first optimizer step counts as step 0 of the schedule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "lr_scheduler_type", ("constant", "cosine"))
        between(self, 0, 1, "min_lr_ratio")
