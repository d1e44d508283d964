# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""LoRA through peft: adapters in place, the base model without them, merged tensors for export.

Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2021: `W' = W + (alpha / r) B A`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import Linear as LoraLinear
from peft.tuners.lora import LoraLayer
from torch import nn
from transformers import PreTrainedModel

from verl.errors import ConfigError, UnsupportedError

ADAPTER = "default"


def lora_config(model_config: Any) -> LoraConfig | None:
    """The adapter that `lora_rank`, `lora_alpha`, `target_modules`, `exclude_modules` describe; None at rank 0."""
    rank = model_config.get("lora_rank", 0)
    if not rank or rank <= 0:
        return None
    alpha = model_config.get("lora_alpha", 16)
    if alpha <= 0:
        raise ConfigError(
            "an adapter with this scale does nothing", where="model.lora_alpha", got=alpha, expected="above 0"
        )
    if model_config.get("lora_adapter_path"):
        raise UnsupportedError(
            "starting from a saved adapter is not supported",
            where="model.lora_adapter_path",
            remedy="merge the adapter into the base model first (python -m verl.model_merger) and set model.path to it",
        )
    targets = model_config.get("target_modules", "all-linear")
    return LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=targets if isinstance(targets, str) else list(targets),
        exclude_modules=model_config.get("exclude_modules"),
        bias="none",
        task_type="CAUSAL_LM",
    )


def add_adapters(model: PreTrainedModel, config: LoraConfig) -> None:
    """Put adapters into the model in place and freeze the rest; names of the base weights gain `base_layer`."""
    inject_adapter_in_model(config, model, adapter_name=ADAPTER)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_is_adapter(name))
    for name, module in model.named_modules():
        if isinstance(module, LoraLayer) and not isinstance(module, LoraLinear):
            raise UnsupportedError(
                f"an adapter on {type(module).__name__} cannot be merged for the rollout",
                where=name,
                remedy="set model.target_modules to linear layers",
            )


def adapter_meta(config: LoraConfig) -> dict[str, Any]:
    """What a checkpoint must say about its adapter beside the tensors."""
    # peft has filled it in by now.
    targets: Any = config.target_modules
    return {
        "r": config.r,
        "lora_alpha": config.lora_alpha,
        "target_modules": targets if isinstance(targets, str) else sorted(targets),
        "task_type": str(getattr(config.task_type, "value", config.task_type)),
    }


def _is_adapter(name: str) -> bool:
    return ".lora_" in name


@contextmanager
def adapters_disabled(model: nn.Module) -> Iterator[None]:
    """The base model, for reference log-probs without a second model."""
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def merged_tensors(
    model: nn.Module, gather: Callable[[torch.Tensor], torch.Tensor], tensors: dict[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Base names with `W + scale * B A`, computed tensor by tensor from gathered copies.

    The module is never changed, so that an iterator which is consumed late or abandoned half way leaves nothing
    behind.
    """
    layers = {f"{name}.base_layer.weight": m for name, m in model.named_modules() if isinstance(m, LoraLayer)}
    for name, tensor in tensors.items():
        if _is_adapter(name):
            continue
        full = gather(tensor)
        if name in layers:
            layer: Any = layers[name]
            a_ri, b_or = gather(layer.lora_A[ADAPTER].weight), gather(layer.lora_B[ADAPTER].weight)
            # A separate sum, not in place: on one rank the gathered tensor is the parameter itself.
            delta_oi = layer.scaling[ADAPTER] * (b_or.float() @ a_ri.float())
            full = (full.float() + delta_oi).to(full.dtype)
        yield name.replace(".base_layer.", "."), full
