# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A character-level Qwen2 model with fewer than a million parameters, saved in Hugging Face form."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

PAD, EOS = "<pad>", "<eos>"
# The characters of the task first, then every other byte, so that any text goes through the same tokenizer.
# (ByteLevel writes a byte as one printable character: itself where ASCII prints, else a stand-in.)
_TASK_CHARACTERS = "0123456789+="
VOCABULARY = (PAD, EOS, *_TASK_CHARACTERS, *sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(_TASK_CHARACTERS)))

# The content of each message as it stands, so that "12+34=" is exactly six tokens; an answer of the
# assistant ends with the end token, which makes the same template right for supervised rows.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte: the model's own tokenizer class without a single merge.

    Transformers loads this class for every Qwen2 model, whatever its tokenizer file says.
    """
    tokenizer = Qwen2Tokenizer(
        vocab={token: index for index, token in enumerate(VOCABULARY)},
        merges=[],
        pad_token=PAD,
        eos_token=EOS,
        unk_token=EOS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(
    seed: int = 0,
    *,
    tie_word_embeddings: bool = True,
    hidden: int = 128,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Qwen2ForCausalLM:
    """A Qwen2 model with random weights drawn from `seed`; the caller's random state is left as it was.

    Two departures from the large model's defaults halve the supervised steps until the sums are learned: weights
    start wider, as the square root of a small width asks, and positions turn faster, as ten of them allow.
    """
    config = Qwen2Config(
        vocab_size=len(VOCABULARY),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=intermediate or 2 * hidden,
        initializer_range=0.08,
        rope_parameters={"rope_type": "default", "rope_theta": 50.0},
        max_position_embeddings=4096,
        tie_word_embeddings=tie_word_embeddings,
        bos_token_id=None,
        eos_token_id=VOCABULARY.index(EOS),
        pad_token_id=VOCABULARY.index(PAD),
        dtype=dtype,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id)
    return model.to(dtype)


def save_tiny_model(
    path: str | Path,
    seed: int = 0,
    tie_word_embeddings: bool = True,
    *,
    hidden: int = 128,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write untrained model and tokenizer to `path`, loadable offline with the Auto classes; returns `path`."""
    path = Path(path)
    model = build_model(
        seed,
        tie_word_embeddings=tie_word_embeddings,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        intermediate=intermediate,
        dtype=dtype,
    )
    model.save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return path
