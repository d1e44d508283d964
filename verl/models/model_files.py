# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a model's section (`HFModelConfig`) says about its files: each field is read when it is asked for."""

from collections.abc import Callable
from typing import Any

from transformers import GenerationConfig, PretrainedConfig

from verl.models.attention import choose_attention
from verl.models.load import load_config
from verl.platform import current_platform
from verl.utils.fs import copy_to_local
from verl.utils.import_utils import import_external_libs
from verl.utils.model import get_generation_config
from verl.utils.tokenizer import hf_processor, hf_tokenizer, load_with_template

_SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def read(section: Any, name: str) -> Any:
    """The value of one field that is worked out from the others; `external_lib` is imported first.

    Raises
    ------
    ConfigError
        where `path` has no configuration that transformers can read.
    """
    import_external_libs(section.external_lib)
    return _READERS[name](section)


def _local(key: str) -> Callable[[Any], str]:
    return lambda section: copy_to_local(getattr(section, key), use_shm=section.use_shm)


def _if_wanted(load: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda section: load_with_template(section, load) if section.load_tokenizer else None


def _hf_config(section: Any) -> PretrainedConfig:
    override = {key: value for key, value in section.override_config.items() if key != "attn_implementation"}
    wanted, platform = section.chosen_attn_implementation, current_platform()
    if section.tokenizer is not None:
        special = {name: getattr(section.tokenizer, name) for name in _SPECIAL_TOKENS}
        override = {name: token for name, token in special.items() if token is not None} | override
    return load_config(
        section.local_hf_config_path,
        attention=choose_attention(wanted, default=platform.attn_implementation, device_type=platform.device_type),
        trust_remote_code=section.trust_remote_code,
        override=override,
        training=False,
    )


def _generation_config(section: Any) -> GenerationConfig | None:
    return get_generation_config(section.local_hf_config_path, trust_remote_code=section.trust_remote_code)


def _architectures(section: Any) -> list[str] | None:
    return section.hf_config.architectures


_READERS: dict[str, Callable[[Any], Any]] = {
    "local_path": _local("path"),
    "local_hf_config_path": _local("hf_config_path"),
    "local_tokenizer_path": _local("tokenizer_path"),
    "hf_config": _hf_config,
    "generation_config": _generation_config,
    "tokenizer": _if_wanted(hf_tokenizer),
    "processor": _if_wanted(hf_processor),
    "architectures": _architectures,
}
