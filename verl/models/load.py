# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face configuration and weights: from a path to a model, on the meta device or with values."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils import logging as hf_logging

from verl.errors import ConfigError, UnsupportedError

_AUTO_CLASSES = {"language_model": AutoModelForCausalLM, "value_model": AutoModelForTokenClassification}


def local_path(path: str) -> str:
    """A directory on this machine as an absolute path, or the hub name as it stands."""
    expanded = Path(path).expanduser()
    return str(expanded) if expanded.exists() else path


def load_config(
    path: str,
    *,
    attention: str,
    trust_remote_code: bool = False,
    override: Mapping[str, Any] | None = None,
    where: str = "actor_rollout_ref.model.path",
    training: bool = True,
) -> PretrainedConfig:
    """The model's configuration with `override` applied; an override of an unknown key is an error.

    Nested mappings (`text_config: {…}`, `rope_parameters: {…}`) are merged into what is there. `where` is the key that
    an error names. While `training` no cache of keys and values is kept.
    """
    try:
        config = AutoConfig.from_pretrained(local_path(path), trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        own_code = "trust_remote_code" in str(error)
        raise ConfigError(
            f"no model configuration can be read ({error})",
            where=where,
            got=path,
            expected="a directory with config.json, or the name of a model in the local hub cache",
            remedy="set actor_rollout_ref.model.trust_remote_code=true if you trust its files" if own_code else None,
        ) from error
    _apply_override(config, dict(override or {}), "override_config")
    config._attn_implementation = attention
    if training:
        config.use_cache = False
    return config


def _apply_override(config: PretrainedConfig, override: Mapping[str, Any], where: str) -> None:
    for key, value in override.items():
        rope = getattr(config, "rope_parameters", None)
        if not hasattr(config, key) and isinstance(rope, dict) and key in rope:
            # Transformers 5 keeps `rope_theta` among the rotary parameters; scripts know it at the top.
            rope[key] = value
            continue
        if not hasattr(config, key):
            known = ", ".join(sorted(name for name in vars(config) if not name.startswith("_")))
            raise ConfigError(f"unknown key {key!r}", where=where, remedy=f"this model's configuration has: {known}")
        current = getattr(config, key)
        if isinstance(value, Mapping) and isinstance(current, PretrainedConfig):
            _apply_override(current, value, f"{where}.{key}")
        elif isinstance(value, Mapping):
            setattr(config, key, {**(current or {}), **value})
        else:
            setattr(config, key, value)


def build_empty(
    config: PretrainedConfig, model_type: str, dtype: torch.dtype, trust_remote_code: bool
) -> PreTrainedModel:
    """The module tree on the meta device: names, shapes, ties, no memory."""
    with torch.device("meta"):
        return _auto_class(config, model_type).from_config(
            config, dtype=dtype, attn_implementation=config._attn_implementation, trust_remote_code=trust_remote_code
        )


def load_full(
    path: str, config: PretrainedConfig, model_type: str, dtype: torch.dtype, trust_remote_code: bool
) -> PreTrainedModel:
    """The whole model with its weights in host memory; a fresh value head gets the model's own initial scale."""
    with _quietly():
        return _auto_class(config, model_type).from_pretrained(
            local_path(path),
            config=config,
            dtype=dtype,
            attn_implementation=config._attn_implementation,
            trust_remote_code=trust_remote_code,
        )


@contextmanager
def _quietly() -> Iterator[None]:
    """No progress bar of a worker on the job's console."""
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            hf_logging.enable_progress_bar()


def _auto_class(config: PretrainedConfig, model_type: str) -> Any:
    auto: Any = _AUTO_CLASSES[model_type]
    remote = getattr(config, "auto_map", None) or {}
    if type(config) not in auto._model_mapping and auto.__name__ not in remote:
        raise UnsupportedError(
            f"transformers has no {auto.__name__} for {config.model_type!r}",
            where=f"model_type={model_type}",
            remedy="use a model whose family transformers covers for this head, or run without a critic",
        )
    return auto


def tied_names(model: nn.Module) -> dict[str, str]:
    """Names that share their tensor with another: `{alias: name under which the tensor is kept}`."""
    kept: dict[int, str] = {}
    aliases: dict[str, str] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        first = kept.setdefault(id(tensor), name)
        if first != name:
            aliases[name] = first
    return aliases


def checkpoint_entries(model: PreTrainedModel, name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """A tensor of the module under the names of the published checkpoint.

    Transformers keeps some models in another layout in memory (fused experts); vLLM and a saved directory want
    the published one.
    """
    if getattr(model, "_weight_conversions", None):
        yield from revert_weight_conversion(model, {name: tensor}).items()
    else:
        yield name, tensor
