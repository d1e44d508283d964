# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Optimizer, learning-rate schedule and clipped step, all from `optim.*`."""

import inspect
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from verl.errors import ConfigError
from verl.utils.import_utils import optional_import

logger = logging.getLogger(__name__)

_FUSED_DEVICES = ("cpu", "cuda")


def build_optimizer(parameters: Iterable[nn.Parameter], config: Any) -> torch.optim.Optimizer:
    """`optimizer_impl.optimizer` (default `torch.optim.AdamW`) over the trainable parameters.

    `lr`, `weight_decay` and `betas` are passed where the class takes them; `override_optimizer_config` wins.
    """
    module = optional_import(config.get("optimizer_impl", "torch.optim"), needed_for="optim.optimizer_impl")
    name = config.get("optimizer", "AdamW")
    cls = getattr(module, name, None)
    if cls is None:
        known = [item for item in vars(module) if inspect.isclass(getattr(module, item)) and item[0].isupper()]
        raise ConfigError("no such optimizer", where="optim.optimizer", got=name, expected=f"one of {sorted(known)}")
    accepted = inspect.signature(cls).parameters
    betas = config.get("betas")
    wanted = {
        "lr": config["lr"],
        "weight_decay": config.get("weight_decay"),
        "betas": None if betas is None else tuple(betas),
    }
    arguments = {key: value for key, value in wanted.items() if value is not None and key in accepted}
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    if "fused" in accepted and all(parameter.device.type in _FUSED_DEVICES for parameter in trainable):
        # One kernel a step instead of some twelve a tensor, each of which sharded tensors make dear.
        arguments["fused"] = True
    arguments |= dict(config.get("override_optimizer_config") or {})
    return cls(trainable, **arguments)


def build_lr_scheduler(optimizer: torch.optim.Optimizer, config: Any) -> torch.optim.lr_scheduler.LambdaLR:
    """Linear warm-up, then `constant` or `cosine` down to `min_lr_ratio`, stepped once an optimizer step."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor(config))


def lr_factor(config: Any) -> Callable[[int], float]:
    """Factor on the learning rate as a function of the number of steps done.

    Warm-up: `t / W`. Cosine after it: `m + (1 - m) * max(0, (1 + cos(2 pi c p)) / 2)` with progress
    `p = (t - W) / (total - W)`, cycles `c = num_cycles`, floor `m = min_lr_ratio`. `zero_indexed_step=False`
    counts from one, so that the first step of a warm-up already learns.
    """
    kind = config.get("lr_scheduler_type") or config.get("warmup_style") or "constant"
    total = config.get("total_training_steps", -1)
    warmup = config.get("lr_warmup_steps", -1)
    if warmup is None or warmup < 0:
        warmup = int(config.get("lr_warmup_steps_ratio", 0.0) * max(total, 0))
    floor = config.get("min_lr_ratio") or 0.0
    cycles = config.get("num_cycles", 0.5)
    first = 0 if config.get("zero_indexed_step", True) else 1
    if kind not in ("constant", "cosine"):
        raise ConfigError("unknown schedule", where="optim.lr_scheduler_type", got=kind, expected="constant or cosine")
    if kind == "cosine" and total <= 0:
        raise ConfigError(
            "a cosine schedule needs its length", where="optim.total_training_steps", got=total, expected="above 0"
        )

    def factor(step: int) -> float:
        step += first
        if step < warmup:
            return step / warmup
        if kind == "constant":
            return 1.0
        progress = min(1.0, (step - warmup) / max(1, total - warmup))
        return floor + (1 - floor) * max(0.0, 0.5 * (1 + math.cos(2 * math.pi * cycles * progress)))

    return factor


def clipped_step(
    optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], max_norm: float | None
) -> tuple[float, bool]:
    """Clip the global gradient norm to `max_norm`, then step; a non-finite norm leaves parameters and moments alone.

    Returns the norm before clipping, and whether the step was taken. It is the norm over all ranks, so all ranks
    decide alike.
    """
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    value = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
    if not math.isfinite(value):
        logger.warning("the gradient norm is %s: this optimizer step is skipped", value)
        return value, False
    if max_norm is not None and max_norm > 0:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    optimizer.step()
    return value, True
