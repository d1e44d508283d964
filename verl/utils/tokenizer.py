# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tokenizer and processor of a model directory, ready for batches."""

import logging
from collections.abc import Callable
from typing import Any

from transformers import AutoConfig, AutoProcessor, AutoTokenizer, PreTrainedTokenizerBase, ProcessorMixin

from verl.errors import ConfigError, DataError
from verl.utils.fs import copy_to_local
from verl.utils.plain import to_plain

__all__ = [
    "hf_processor",
    "hf_tokenizer",
    "load_tokenizer_and_processor",
    "load_with_template",
    "normalize_token_ids",
    "set_pad_token_id",
    "usable_processor",
]

logger = logging.getLogger(__name__)


def normalize_token_ids(tokenized_output: Any) -> list[int]:
    """A flat list of ints from whatever a tokenizer or chat template returned for ONE text.

    Accepts a list, a mapping with `input_ids`, an array or tensor, each with or without a batch axis of one.
    """
    ids: Any = tokenized_output
    if hasattr(ids, "keys"):
        ids = ids["input_ids"]
    elif hasattr(ids, "input_ids"):
        ids = ids.input_ids
    if hasattr(ids, "tolist"):
        ids = ids.tolist()
    ids = list(ids)
    # A tensor of no dimension has `__len__` too: it is one id.
    if ids and hasattr(ids[0], "__len__") and getattr(ids[0], "ndim", 1):
        if len(ids) != 1:
            raise DataError("token ids of one text were expected", got=f"{len(ids)} rows", expected="1 row")
        ids = ids[0].tolist() if hasattr(ids[0], "tolist") else ids[0]
    return [int(token) for token in to_plain(list(ids))]


def set_pad_token_id(tokenizer: PreTrainedTokenizerBase) -> None:
    """Let a tokenizer without a padding token pad with its end token."""
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token_id = tokenizer.eos_token_id
        logger.debug("pad token id is the end token id %s", tokenizer.eos_token_id)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token


def hf_tokenizer(
    name_or_path: str, correct_pad_token: bool = True, correct_gemma2: bool = True, **kwargs: Any
) -> PreTrainedTokenizerBase:
    """Load a tokenizer; `trust_remote_code` and other keywords go on to transformers.

    `correct_gemma2`: gemma-2-2b-it ends a turn with <end_of_turn>, which its tokenizer does not call the end token.
    """
    if correct_gemma2 and isinstance(name_or_path, str) and "gemma-2-2b-it" in name_or_path:
        kwargs = {"eos_token": "<end_of_turn>", "eos_token_id": 107} | kwargs
    tokenizer = AutoTokenizer.from_pretrained(name_or_path, **kwargs)
    if correct_pad_token:
        set_pad_token_id(tokenizer)
    return tokenizer


def hf_processor(name_or_path: str, **kwargs: Any) -> ProcessorMixin | None:
    """The processor of a multi-modal model, or None for a text model."""
    config = None
    try:
        config = AutoConfig.from_pretrained(name_or_path, **_remote_code(kwargs))
        processor = AutoProcessor.from_pretrained(name_or_path, **kwargs)
    except (OSError, ValueError, ImportError) as error:
        # transformers has no way to ask whether there is a processor; a text model answers with one of these.
        sees = getattr(config, "vision_config", None) is not None
        logger.log(
            logging.WARNING if sees else logging.DEBUG,
            "no processor in %s%s: %s",
            name_or_path,
            ", which has a vision part and is used as a text model" if sees else "",
            error,
        )
        return None
    return usable_processor(processor, str(getattr(config, "model_type", name_or_path)))


def usable_processor(processor: Any, model_type: str) -> Any | None:
    """The processor if it can see images or videos; AutoProcessor also answers with bare tokenizers."""
    if isinstance(processor, PreTrainedTokenizerBase) or getattr(processor, "image_processor", None) is None:
        logger.debug("%s: the processor has no image part, so the model is treated as a text model", model_type)
        return None
    return processor


def _remote_code(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"trust_remote_code": kwargs["trust_remote_code"]} if "trust_remote_code" in kwargs else {}


def load_tokenizer_and_processor(model_config: Any) -> tuple[PreTrainedTokenizerBase, ProcessorMixin | None]:
    """Tokenizer and processor (None for text models) of `actor_rollout_ref.model`.

    `tokenizer_path` may differ from `path`; `custom_chat_template` replaces the model's own in both.
    """
    return load_with_template(model_config, hf_tokenizer), load_with_template(model_config, hf_processor)


def load_with_template(model_config: Any, load: Callable[..., Any]) -> Any:
    """What `load` (`hf_tokenizer` or `hf_processor`) finds for a model's section."""
    path = model_config.get("tokenizer_path", None) or model_config.path
    local = copy_to_local(path, use_shm=bool(model_config.get("use_shm", False)))
    try:
        loaded = load(local, trust_remote_code=bool(model_config.get("trust_remote_code", False)))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no tokenizer can be read ({error})",
            where="model.tokenizer_path" if model_config.get("tokenizer_path", None) else "model.path",
            got=path,
            expected="a directory with a tokenizer's files, or the name of a model in the local hub cache",
        ) from error
    template = model_config.get("custom_chat_template", None)
    if loaded is not None and template is not None:
        loaded.chat_template = template
    return loaded
