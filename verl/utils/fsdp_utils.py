# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sharding helpers for workers that a recipe writes itself; the engine has no need of them.

Models are sharded by FSDP2 (`apply_fsdp2`). Of FSDP1 only the arguments of its constructor are made here.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from peft import PeftModel, get_peft_model_state_dict
from peft.tuners.tuners_utils import check_target_module_exists
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import _or_policy, size_based_auto_wrap_policy, transformer_auto_wrap_policy
from torch.distributed.tensor import DTensor, Shard

from verl.errors import ConfigError, UnsupportedError
from verl.platform import current_platform
from verl.workers.engine.fsdp import build, offload

__all__ = [
    "CPUOffloadPolicy",
    "FSDPModule",
    "MixedPrecisionPolicy",
    "apply_fsdp2",
    "collect_lora_params",
    "fsdp2_clip_grad_norm_",
    "fsdp2_load_full_state_dict",
    "fsdp_version",
    "get_fsdp_wrap_policy",
    "get_init_weight_context_manager",
    "get_shard_placement_fn",
    "get_sharding_strategy",
    "get_vl_model_vision_tower",
    "init_fn",
    "layered_summon_lora_params",
    "load_fsdp_model_to_gpu",
    "load_fsdp_optimizer",
    "offload_fsdp_model_to_cpu",
    "offload_fsdp_optimizer",
    "replace_lora_wrapper",
]

# Linear layers that vLLM wraps whenever an adapter is served, whether or not this adapter touches them.
_WRAPPED_BY_VLLM = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


# ---- building -----------------------------------------------------------------------------------------------------


def init_fn(x: nn.Module) -> nn.Module:
    """FSDP's `param_init_fn`: memory without values on every rank but 0, whose values are broadcast afterwards."""
    if dist.get_rank() == 0:
        return x
    return x.to_empty(device=current_platform().device_type, recurse=False)


def get_init_weight_context_manager(
    use_meta_tensor: bool = True, mesh: DeviceMesh | None = None
) -> Callable[[], AbstractContextManager[Any]]:
    """What to build the model under: `with get_init_weight_context_manager()(): model = …from_pretrained(…)`.

    Host memory on the first rank (of each shard group of `mesh`), parameters without memory on the others; buffers
    have their values everywhere. `use_meta_tensor=False`, for tied embeddings: host memory everywhere.
    """
    # A mesh that this rank is part of.
    coordinate: Any = None if mesh is None else mesh.get_coordinate()
    first = dist.get_rank() == 0 if mesh is None else coordinate[-1] == 0
    return _without_parameter_memory if use_meta_tensor and not first else lambda: torch.device("cpu")


@contextmanager
def _without_parameter_memory() -> Iterator[None]:
    register = nn.Module.register_parameter

    def register_without_memory(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        register(module, name, param)
        if param is not None and param.device.type != "meta":
            empty = nn.Parameter(param.to("meta"), requires_grad=param.requires_grad)
            module._parameters[name] = empty

    nn.Module.register_parameter = register_without_memory  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def get_fsdp_wrap_policy(module: nn.Module, config: Any = None, is_lora: bool = False) -> Callable[..., bool] | None:
    """FSDP1's `auto_wrap_policy` from `wrap_policy.*`: by the module's transformer blocks, or by `min_num_params`.

    With `is_lora` layers that can be trained are units of their own. None where `disable` is set or nothing is left.
    """
    config = config or {}
    if config.get("disable", False):
        return None
    policies = []
    if is_lora:
        policies.append(_trainable_leaf)
    min_num_params = config.get("min_num_params", 0)
    names = config.get("transformer_layer_cls_to_wrap") or getattr(module, "_no_split_modules", None)
    if min_num_params > 0:
        policies.append(functools.partial(size_based_auto_wrap_policy, min_num_params=min_num_params))
    elif names:
        policies.append(
            functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=_classes_named(module, names))
        )
    return functools.partial(_or_policy, policies=policies) if policies else None


def _trainable_leaf(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
    weight: Any = getattr(module, "weight", None)
    leaf = not list(module.children()) and weight is not None
    # While the tree is walked, every module may have such a leaf below it.
    return recurse or (leaf and weight.requires_grad)


def _classes_named(module: nn.Module, names: Iterable[str] | str) -> set[type[nn.Module]]:
    wanted = {names} if isinstance(names, str) else set(names)
    found = {type(part).__name__: type(part) for part in module.modules()}
    if not wanted & found.keys():
        raise ConfigError(
            "the model has no such layer",
            where="wrap_policy.transformer_layer_cls_to_wrap",
            got=sorted(wanted),
            expected=f"one of {sorted(found)}",
        )
    return {found[name] for name in wanted & found.keys()}


def get_sharding_strategy(device_mesh: DeviceMesh, zero3_enable: bool = True) -> ShardingStrategy:
    """FSDP1's `sharding_strategy` for a mesh of one dimension, or of two (replicas of shard groups)."""
    by_dimensions = {
        1: (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.FULL_SHARD),
        2: (ShardingStrategy._HYBRID_SHARD_ZERO2, ShardingStrategy.HYBRID_SHARD),
    }
    if device_mesh.ndim not in by_dimensions:
        raise ConfigError(
            "no sharding for a mesh of this form", got=f"{device_mesh.ndim} dimensions", expected="1 or 2"
        )
    return by_dimensions[device_mesh.ndim][zero3_enable]


def get_shard_placement_fn(fsdp_size: int) -> Callable[[nn.Parameter], Shard]:
    """`fully_shard`'s `shard_placement_fn`: the first dimension that divides by `fsdp_size`, else the first."""

    def place(param: nn.Parameter) -> Shard:
        return Shard(next((dim for dim, length in enumerate(param.shape) if length % fsdp_size == 0), 0))

    return place


def apply_fsdp2(model: nn.Module, fsdp_kwargs: Mapping[str, Any], config: Any) -> None:
    """`fully_shard` each transformer block (`config.wrap_policy.transformer_layer_cls_to_wrap`, else the model's own
    list), a large untied embedding, and the rest."""
    names = ((config or {}).get("wrap_policy") or {}).get("transformer_layer_cls_to_wrap")
    for unit in list(build.sharded_units(model, names)):
        fully_shard(unit, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)


def fsdp2_load_full_state_dict(
    model: nn.Module,
    full_state: Mapping[str, torch.Tensor],
    device_mesh: DeviceMesh | None = None,
    cpu_offload: Any = None,
) -> None:
    """Fill a sharded model on its device from the whole state dict that rank 0 holds; other ranks' is not read.

    Buffers become those of rank 0. With `cpu_offload` the parameters end in host memory, the buffers on the device.
    """
    device = current_platform().device_type
    sources = None
    if dist.get_rank() == 0:
        # Buffers outside the state dict have their values nowhere else.
        sources = {name: buffer.clone() for name, buffer in model.named_buffers()} | dict(full_state)
    model.to_empty(device=device)
    build.fill_from_rank_zero(model, sources)
    if cpu_offload:
        model.to("cpu")
        for buffer in model.buffers():
            buffer.data = buffer.data.to(device)


def fsdp_version(model: nn.Module) -> int:
    """2 for `fully_shard`, 1 for FullyShardedDataParallel, 0 for a model that is not sharded."""
    return 2 if isinstance(model, FSDPModule) else 1 if isinstance(model, FullyShardedDataParallel) else 0


def get_vl_model_vision_tower(vl_model_instance: nn.Module) -> nn.Module | None:
    """The part of a vision-language model that sees, or None."""
    for owner in (getattr(vl_model_instance, "model", None), vl_model_instance):
        for name in ("visual", "vision_tower", "vision_model"):
            if isinstance(getattr(owner, name, None), nn.Module):
                return getattr(owner, name)
    return None


# ---- offload ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def offload_fsdp_model_to_cpu(model: nn.Module, empty_cache: bool = True) -> None:
    """Parameters and buffers to host memory."""
    _refuse_fsdp1(model)
    offload.move_model(model, "cpu")
    if empty_cache:
        current_platform().empty_cache()


@torch.no_grad()
def load_fsdp_model_to_gpu(model: nn.Module) -> None:
    """Parameters and buffers to this rank's device."""
    _refuse_fsdp1(model)
    offload.move_model(model, current_platform().device_type)


def _refuse_fsdp1(model: nn.Module) -> None:
    if fsdp_version(model) == 1:
        raise UnsupportedError(
            "a FullyShardedDataParallel module is not moved between devices here",
            remedy="shard it by apply_fsdp2 (strategy=fsdp2), or build it with cpu_offload=CPUOffload(True)",
        )


@torch.no_grad()
def offload_fsdp_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Optimizer state to host memory; there is none before the first step."""
    offload.move_optimizer(optimizer, "cpu")


@torch.no_grad()
def load_fsdp_optimizer(optimizer: torch.optim.Optimizer, device_id: int | str | torch.device) -> None:
    """Optimizer state to a device, given by its number or name."""
    if isinstance(device_id, int):
        kind = current_platform().device_type
        device_id = torch.device(kind, device_id) if kind != "cpu" else torch.device(kind)
    offload.move_optimizer(optimizer, device_id)


# ---- training -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def fsdp2_clip_grad_norm_(
    parameters: Iterable[torch.Tensor] | torch.Tensor,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Scale gradients in place to a norm of at most `max_norm` over all ranks; returns the norm before it."""
    parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = _full(nn.utils.get_total_norm(gradients, norm_type, error_if_nonfinite, foreach))
    nn.utils.clip_grads_with_norm_(parameters, max_norm, norm, foreach)
    return norm


# ---- adapters -----------------------------------------------------------------------------------------------------


def layered_summon_lora_params(fsdp_module: PeftModel, is_diffusers: bool = False) -> "OrderedDict[str, torch.Tensor]":
    """The adapter's whole tensors in host memory, by peft's names."""
    return collect_lora_params(fsdp_module, layered_summon=True, base_sync_done=True, is_diffusers=is_diffusers)


@torch.no_grad()
def collect_lora_params(
    module: PeftModel, layered_summon: bool, base_sync_done: bool, is_diffusers: bool = False
) -> "OrderedDict[str, torch.Tensor]":
    """What a rollout engine needs: the adapter by peft's names, or (`base_sync_done=False`) the base model by its own.

    Whole tensors in host memory; every rank must call it. They are gathered one by one, `layered_summon` or not.
    """
    if is_diffusers:
        raise UnsupportedError("diffusion models are left out", where="is_diffusers", remedy="pass False")
    if not isinstance(module, PeftModel):
        raise ConfigError("the model has no adapter", got=type(module).__name__, expected="a peft.PeftModel")
    if base_sync_done:
        named = get_peft_model_state_dict(module)
    else:
        inner: Any = module.base_model.model
        state = inner.state_dict()
        named = {name.replace(".base_layer", ""): value for name, value in state.items() if "lora_" not in name}
    return OrderedDict((name, _full(value).detach().cpu()) for name, value in named.items())


def replace_lora_wrapper(k: str, peft_config: Any) -> str:
    """A base weight's name in an engine that serves adapters: the layers it wraps keep theirs in `base_layer`."""
    layer, _, kind = k.rpartition(".")
    if kind not in ("weight", "bias"):
        return k
    wrapped = layer.endswith(_WRAPPED_BY_VLLM) and not _excluded(peft_config, layer)
    return f"{layer}.base_layer.{kind}" if wrapped or check_target_module_exists(peft_config, layer) else k


def _excluded(peft_config: Any, layer: str) -> bool:
    names = getattr(peft_config, "exclude_modules", None)
    if not names:
        return False
    probe = type(peft_config)(target_modules=names)
    return bool(check_target_module_exists(probe, layer))


def _full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
