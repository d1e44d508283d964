# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Small helpers around Hugging Face models, for workers that a recipe writes itself."""

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, GenerationConfig, PretrainedConfig, PreTrainedModel

from verl.errors import ConfigError
from verl.models.attention import choose_attention
from verl.models.load import checkpoint_entries, load_full, local_path
from verl.models.value_head import configure_value_model
from verl.platform import current_platform

__all__ = [
    "compute_position_id_with_mask",
    "convert_weight_keys",
    "extract_multi_modal_inputs",
    "get_generation_config",
    "get_model_size",
    "load_valuehead_model",
    "print_model_size",
    "update_model_config",
]

logger = logging.getLogger(__name__)

_SCALES = {"B": 1e9, "M": 1e6, "K": 1e3, "": 1.0}


def update_model_config(module_config: PretrainedConfig, override_config_kwargs: Mapping[str, Any]) -> None:
    """Set keys of a model's configuration in place; a mapping changes the section of that name, key by key."""
    for key, value in override_config_kwargs.items():
        section = getattr(module_config, key, None)
        if not isinstance(value, Mapping) or section is None:
            setattr(module_config, key, value)
        elif isinstance(section, dict):
            section.update(value)
        elif isinstance(section, PretrainedConfig):
            update_model_config(section, value)
        else:
            raise ConfigError("this key has no keys below it", where=f"override_config.{key}", got=value)


def get_generation_config(model: str, trust_remote_code: bool = False) -> GenerationConfig | None:
    """A model's sampling defaults: its `generation_config.json`, else what its configuration says, else None."""
    path = local_path(model)
    try:
        return GenerationConfig.from_pretrained(path)
    except OSError:
        pass
    try:
        return GenerationConfig.from_model_config(AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code))
    except (OSError, ValueError):
        return None


def get_model_size(model: nn.Module, scale: str = "auto") -> tuple[float, str]:
    """Number of parameters in `scale`: "B", "M", "K", "" (single), or the largest of them that leaves more than 1."""
    count = float(sum(parameter.numel() for parameter in model.parameters()))
    if scale == "auto":
        scale = next((name for name, size in _SCALES.items() if count > size), "")
    if scale not in _SCALES:
        raise ConfigError("unknown scale", got=scale, expected=f"auto or one of {list(_SCALES)}")
    return count / _SCALES[scale], scale


def print_model_size(model: nn.Module, name: str | None = None) -> None:
    """One log line with the number of parameters."""
    size, scale = get_model_size(model)
    logger.info("%s contains %.2f%s parameters", name or type(model).__name__, size, scale)


def compute_position_id_with_mask(mask: Tensor) -> Tensor:
    """Place of each valid token in its sequence, 0 before the first: [B, S] -> [B, S]."""
    return (mask.cumsum(dim=-1) - 1).clamp(min=0)


def convert_weight_keys(state_dict: Mapping[str, Tensor], model: PreTrainedModel) -> dict[str, Tensor]:
    """The tensors under the names of the published checkpoint, in its layout."""
    return {
        published: value
        for name, tensor in state_dict.items()
        for published, value in checkpoint_entries(model, name, tensor)
    }


def load_valuehead_model(
    local_path: str, torch_dtype: torch.dtype, model_config: PretrainedConfig, trust_remote_code: bool
) -> PreTrainedModel:
    """A model with one number per token, its head fresh where the checkpoint has none."""
    config = copy.deepcopy(model_config)
    configure_value_model(config)
    platform = current_platform()
    wanted = getattr(config, "_attn_implementation", None)
    config._attn_implementation = choose_attention(
        wanted, default=platform.attn_implementation, device_type=platform.device_type
    )
    return load_full(local_path, config, "value_model", torch_dtype, trust_remote_code)


def extract_multi_modal_inputs(
    batch_data: Sequence[Mapping[str, Any]], indices: Sequence[int] | None = None
) -> dict[str, Tensor | list[Tensor]]:
    """A processor's outputs of several rows as one model input: each key's tensors joined along dimension 0.

    `indices` chooses rows. Rows may lack keys. A model that places images by `image_bound` takes them as lists.
    """
    rows = list(batch_data) if indices is None else [batch_data[index] for index in indices]
    found: dict[str, list[Tensor]] = {}
    for row in rows:
        for key, value in row.items():
            if value is not None:
                found.setdefault(key, []).append(value)
    if "image_bound" in found:
        return dict(found)
    return {key: torch.cat(values, dim=0) for key, values in found.items()}
