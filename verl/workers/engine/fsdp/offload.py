# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Parameters, gradients and optimizer state to host memory and back; copies of the weights kept by number."""

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from verl.errors import CheckpointError


def move_model(root: nn.Module, device: torch.device | str) -> None:
    """Move parameters and buffers; sharded parameters are put back into their sharded form first."""
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    root.to(device, non_blocking=True)


def move_gradients(root: nn.Module, device: torch.device | str) -> None:
    """Move gradients that exist; parameters stay where they are."""
    for parameter in root.parameters():
        if parameter.grad is not None:
            parameter.grad = parameter.grad.to(device, non_blocking=True)


@torch.no_grad()
def move_optimizer(optimizer: torch.optim.Optimizer, device: torch.device | str) -> None:
    """Move optimizer state; step counters stay on the host, where torch keeps them."""
    for state in optimizer.state.values():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() > 0:
                state[key] = value.to(device, non_blocking=True)


class WeightShelf:
    """Copies of this rank's weights in host memory, by number (decoupled old log-probs need an earlier policy)."""

    def __init__(self) -> None:
        self._copies: dict[int, dict[str, torch.Tensor]] = {}

    @torch.no_grad()
    def save(self, number: int, model: nn.Module) -> None:
        """Copy the weights under `number`, over an earlier copy of that number."""
        known = self._copies.setdefault(number, {})
        for name, tensor in _local_tensors(model):
            known.setdefault(name, torch.empty_like(tensor, device="cpu")).copy_(tensor)

    @torch.no_grad()
    def restore(self, number: int, model: nn.Module) -> None:
        """Write the copy `number` back into the model."""
        if number not in self._copies:
            raise CheckpointError("no weights were saved under this number", got=number, expected=sorted(self._copies))
        for name, tensor in _local_tensors(model):
            tensor.copy_(self._copies[number][name])

    def clear(self, number: int) -> None:
        """Forget a copy; forgetting one that does not exist is allowed."""
        self._copies.pop(number, None)


def _local_tensors(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return [(name, tensor.to_local() if isinstance(tensor, DTensor) else tensor.data) for name, tensor in named]
