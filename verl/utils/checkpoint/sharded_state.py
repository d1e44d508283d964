# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""This rank's part of a sharded model and of its optimizer, by name; and the same put back in place."""

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from verl.errors import CheckpointError

Tensors = dict[str, torch.Tensor]


def named_tensors(model: nn.Module) -> Tensors:
    """What belongs to the model: parameters and persistent buffers, each shared parameter once, in state-dict order."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    buffers = dict(model.named_buffers(remove_duplicate=False))
    seen: set[int] = set()
    named: Tensors = {}
    for name in model.state_dict():
        tensor = parameters.get(name)
        if tensor is None:
            named[name] = buffers[name]
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            named[name] = tensor
    return named


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's piece of a sharded tensor, or the tensor itself; a view in both cases."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def model_state(model: nn.Module) -> Tensors:
    """This rank's part of the model: sharded parameters (as DTensors, which carry their layout) and buffers."""
    return {name: tensor.detach() for name, tensor in named_tensors(model).items()}


@torch.no_grad()
def load_model_state(model: nn.Module, saved: Tensors, where: str) -> None:
    """Copy a saved part into the model in place; names and shapes must agree."""
    named = named_tensors(model)
    missing, unknown = sorted(named.keys() - saved.keys()), sorted(saved.keys() - named.keys())
    if missing or unknown:
        raise CheckpointError(
            "the checkpoint is of another model",
            where=where,
            got=f"missing {missing[:3]}, unknown {unknown[:3]}",
            remedy="load it with the model.path and LoRA settings that it was saved with",
        )
    for name, tensor in named.items():
        target, source = local_part(tensor), local_part(saved[name])
        if target.shape != source.shape:
            raise CheckpointError(
                f"the shape of {name} differs", where=where, got=tuple(source.shape), expected=tuple(target.shape)
            )
        target.copy_(source)


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Optimizer state by parameter name, and the hyper-parameters of the groups."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return {"state": {names[id(p)]: dict(state) for p, state in optimizer.state.items()}, "param_groups": groups}


def load_optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer, saved: dict[str, Any], where: str) -> None:
    """Restore what was saved; a parameter without an entry never had a gradient and starts fresh."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    if len(saved["param_groups"]) != len(optimizer.param_groups):
        raise CheckpointError(
            "the optimizer has another number of parameter groups",
            where=where,
            got=len(saved["param_groups"]),
            expected=len(optimizer.param_groups),
        )
    for group, values in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        group.update(values)
    optimizer.state.clear()
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        entry = saved["state"].get(names[id(parameter)])
        if entry is not None:
            optimizer.state[parameter] = {key: _laid_out_like(value, parameter) for key, value in entry.items()}


def _laid_out_like(value: Any, parameter: torch.Tensor) -> Any:
    """A saved moment on the parameter's device and mesh; step counters and numbers as they are."""
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    local = local_part(value).to(local_part(parameter).device)
    if not isinstance(parameter, DTensor) or value.shape != parameter.shape:
        return local
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
