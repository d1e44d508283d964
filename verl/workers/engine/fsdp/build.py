# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From a model path to a sharded module: mesh, precision, `fully_shard` plan, recompute, weights."""

import itertools
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from verl.errors import ConfigError, UnsupportedError
from verl.platform import current_platform
from verl.utils.torch_dtypes import PrecisionType

logger = logging.getLogger(__name__)


def create_device_mesh(world_size: int, fsdp_size: int, device_type: str | None = None) -> DeviceMesh:
    """`(fsdp,)` over all ranks, or `(ddp, fsdp)` where parameters are sharded over `fsdp_size` ranks only (HSDP)."""
    device_type = device_type or current_platform().device_type
    if fsdp_size in (-1, 0) or fsdp_size >= world_size:
        return init_device_mesh(device_type, (world_size,), mesh_dim_names=("fsdp",))
    if fsdp_size < 0 or world_size % fsdp_size:
        raise ConfigError(
            "the ranks do not divide into shard groups",
            where="fsdp_config.fsdp_size",
            got=f"{fsdp_size} with {world_size} ranks",
            expected="-1 or a divisor of the number of ranks",
        )
    return init_device_mesh(device_type, (world_size // fsdp_size, fsdp_size), mesh_dim_names=("ddp", "fsdp"))


def mixed_precision(config: Any, device_type: str) -> MixedPrecisionPolicy:
    """Compute and reduce dtypes: `mixed_precision.{param_dtype,reduce_dtype}`, else `dtype` with fp32 reduction.

    On a CPU the default is fp32: most CPUs have no bf16 matrix units and are 8 to 16 times slower in it (measured).
    """
    wanted = dict(config.get("mixed_precision") or {})
    default = "fp32" if device_type == "cpu" else config.get("dtype", "bfloat16")
    if "param_dtype" not in wanted and default == "fp32" and not PrecisionType.is_fp32(config.get("dtype", "fp32")):
        logger.info(
            "computing in fp32 on this CPU; to force another dtype for the actor, add "
            "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16"
        )
    return MixedPrecisionPolicy(
        param_dtype=PrecisionType.to_dtype(wanted.get("param_dtype", default)),
        reduce_dtype=PrecisionType.to_dtype(wanted.get("reduce_dtype", "fp32")),
    )


def shard(root: nn.Module, model: PreTrainedModel, mesh: DeviceMesh, config: Any) -> None:
    """Apply FSDP2: one group for each transformer block, one for a large untied embedding, the rest in `root`."""
    if (config.get("wrap_policy") or {}).get("min_num_params"):
        raise UnsupportedError(
            "size-based wrapping belongs to FSDP1",
            where="fsdp_config.wrap_policy.min_num_params",
            remedy="leave it at 0; FSDP2 groups parameters by transformer block",
        )
    kwargs: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": mixed_precision(config, mesh.device_type),
        # A group of one frees nothing by resharding, and would only copy its parameters once more.
        "reshard_after_forward": bool(config.get("reshard_after_forward", True)) and mesh.size() > 1,
        "offload_policy": _offload_policy(config, mesh.device_type),
    }
    # `fully_shard` makes FSDPModules of them.
    units: list[Any] = list(
        sharded_units(model, (config.get("wrap_policy") or {}).get("transformer_layer_cls_to_wrap"))
    )
    for unit in units:
        fully_shard(unit, **kwargs)
    fully_shard(root, **kwargs)
    if config.get("forward_prefetch", False):
        for unit, following in itertools.pairwise(units):
            unit.set_modules_to_forward_prefetch([following])


def _offload_policy(config: Any, device_type: str) -> OffloadPolicy:
    offload = config.get("offload_policy", False) and device_type != "cpu"
    return CPUOffloadPolicy(pin_memory=True) if offload else OffloadPolicy()


def sharded_units(model: Any, class_names: Iterable[str] | str | None = None) -> Iterable[nn.Module]:
    """Modules that become FSDP groups of their own, in forward order."""
    names = {class_names} if isinstance(class_names, str) else set(class_names or model._no_split_modules or ())
    embedding = None if model.config.tie_word_embeddings else model.get_input_embeddings()
    for module in model.modules():
        if type(module).__name__ in names or module is embedding:
            yield module


def enable_recompute(model: PreTrainedModel) -> None:
    """Recompute each block's activations in the backward pass instead of keeping them."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


@torch.no_grad()
def fill_from_rank_zero(model: nn.Module, sources: Mapping[str, torch.Tensor] | None) -> None:
    """Give every rank its part of the whole tensors that rank 0 holds by name in `sources` (None elsewhere).

    Collectives run in name order, so that it does not matter in which order a rank registered its tensors.
    Buffers that are not in the state dict (rotary frequencies) travel as well: nothing else computes them.
    """
    for name, target in sorted(named_tensors(model).items()):
        local = target.to_local() if isinstance(target, DTensor) else target
        if sources is not None:
            value = sources[name].to(device=local.device, dtype=target.dtype)
        else:
            value = torch.empty(target.shape, dtype=target.dtype, device=local.device)
        if dist.get_world_size() > 1:
            value = value.contiguous()
            dist.broadcast(value, src=0)
        if isinstance(target, DTensor):
            # The broadcast has run; each rank cuts its own part without talking to the others.
            value = distribute_tensor(value, target.device_mesh, target.placements, src_data_rank=None).to_local()
        local.copy_(value)


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, each once."""
    return dict(model.named_parameters()) | dict(model.named_buffers())
