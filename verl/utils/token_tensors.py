# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Token ids and masks: end of response, padding, truncation, packing.

Shapes: B sequences, S tokens with padding, T response tokens, K packed tokens, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from verl.algorithms.logits import logprobs_from_logits
from verl.errors import ConfigError, DataError, UnsupportedError


def get_response_mask(response_id: Tensor, eos_token: int | list[int] = 2, dtype: torch.dtype = torch.int64) -> Tensor:
    """1 up to and including the first end-of-sequence token of each row: [B, T] -> [B, T]."""
    ends = torch.isin(response_id, torch.as_tensor(eos_token, device=response_id.device)).int()
    return (ends.cumsum(-1) - ends == 0).to(dtype)


def pad_2d_list_to_length(
    response: Sequence[Sequence[int]], pad_token_id: int, max_length: int | None = None
) -> Tensor:
    """Rows of ids padded right to the longest of them, or to `max_length` if that is more: [B, S] int64."""
    width = max([*map(len, response), max_length or 0], default=0)
    return torch.tensor([[*row, *[pad_token_id] * (width - len(row))] for row in response], dtype=torch.int64)


def pad_sequence_to_length(tensors: Tensor, max_seq_len: int, pad_token_id: int, left_pad: bool = False) -> Tensor:
    """Pad the last dimension to `max_seq_len`; a longer tensor is returned as it is."""
    missing = max_seq_len - tensors.shape[-1]
    if missing <= 0:
        return tensors
    return functional.pad(tensors, (missing, 0) if left_pad else (0, missing), value=pad_token_id)


def postprocess_data(
    input_ids: Tensor,
    attention_mask: Tensor,
    max_length: int,
    pad_token_id: int,
    left_pad: bool = True,
    truncation: str = "error",
) -> tuple[Tensor, Tensor]:
    """Bring ids and mask [B, S] to exactly `max_length`; `truncation` is left, right, middle or error."""
    if truncation not in ("left", "right", "middle", "error"):
        raise ConfigError(
            "unknown truncation", where="data.truncation", got=truncation, expected="left | right | middle | error"
        )
    length = input_ids.shape[-1]
    if length <= max_length:
        padded = pad_sequence_to_length(input_ids, max_length, pad_token_id, left_pad)
        return padded, pad_sequence_to_length(attention_mask, max_length, 0, left_pad)
    if truncation == "error":
        raise DataError(
            "a sequence is longer than allowed",
            got=length,
            expected=f"at most {max_length} tokens",
            remedy="raise the limit, or set data.truncation or data.filter_overlong_prompts",
        )
    head = {"left": 0, "right": max_length, "middle": max_length // 2}[truncation]
    keep = torch.cat([torch.arange(head), torch.arange(length - (max_length - head), length)]).to(input_ids.device)
    return input_ids[..., keep], attention_mask[..., keep]


def tokenize_and_postprocess_data(
    prompt: str, tokenizer: Any, max_length: int, pad_token_id: int, left_pad: bool = True, truncation: str = "error"
) -> tuple[Tensor, Tensor]:
    """Ids and mask [1, max_length] of one text, without special tokens."""
    encoded = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    return postprocess_data(
        encoded["input_ids"], encoded["attention_mask"], max_length, pad_token_id, left_pad, truncation
    )


def remove_pad_token(input_ids: Tensor, attention_mask: Tensor) -> list[list[int]]:
    """The real ids of each row."""
    return [row[mask.bool()].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]


def log_probs_from_logits_response(input_ids: Tensor, logits: Tensor, response_length: int) -> Tensor:
    """Log-probs of the last `response_length` tokens: ids [B, S], logits [B, S, V] -> [B, T]."""
    return logprobs_from_logits(logits[:, -response_length - 1 : -1], input_ids[:, -response_length:], False)


def log_probs_from_logits_response_rmpad(
    input_ids: Tensor, attention_mask: Tensor, logits_rmpad: Tensor, response_length: int
) -> Tensor:
    """The same from packed logits [K, V]: ids and mask [B, S] -> [B, T]."""
    indices, _, _ = get_unpad_data(attention_mask)
    batch_size, seqlen = input_ids.shape
    return log_probs_from_logits_all_rmpad(
        input_ids.flatten()[indices].unsqueeze(0), logits_rmpad, indices, batch_size, seqlen, response_length
    )


def log_probs_from_logits_all_rmpad(
    input_ids_rmpad: Tensor, logits_rmpad: Tensor, indices: Tensor, batch_size: int, seqlen: int, response_length: int
) -> Tensor:
    """The same from packed ids [1, K]; `indices` [K] are their places in the flattened [B, S]."""
    next_ids = torch.roll(input_ids_rmpad.reshape(-1), -1)
    packed = logprobs_from_logits(logits_rmpad.reshape(len(next_ids), -1), next_ids, False)
    padded = packed.new_zeros(batch_size * seqlen).index_put((indices,), packed).view(batch_size, seqlen)
    return padded[:, -response_length - 1 : -1]


def get_unpad_data(attention_mask: Tensor) -> tuple[Tensor, Tensor, int]:
    """Places of the real tokens in the flattened mask [K], cumulative lengths [B + 1] int32, longest length."""
    lengths = attention_mask.sum(-1, dtype=torch.int32)
    indices = attention_mask.flatten().nonzero().flatten()
    return indices, functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0)), int(lengths.max())


def post_process_logits(input_ids: Tensor, logits: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Divide logits by the temperature, in place."""
    if (top_k or 0) > 0 or (top_p is not None and 0 < top_p < 1):
        raise UnsupportedError("log-probs under top-k or top-p sampling", remedy="train with top_k=-1 and top_p=1")
    return logits if temperature == 1.0 else logits.div_(temperature)


def split_dict_tensor_into_batches(tensors: Any, batch_size: int) -> list[Any]:
    """A TensorDict in parts of `batch_size` rows, which must divide it."""
    if tensors.batch_size[0] % batch_size:
        raise DataError(
            "rows do not divide into batches", got=tensors.batch_size[0], expected=f"a multiple of {batch_size}"
        )
    return list(tensors.split(batch_size))


def expand_as_nested(tensor: Tensor, nested_tensor: Tensor) -> Tensor:
    """One value for each row [B], repeated over the tokens of a jagged tensor [B, j]."""
    offsets = nested_tensor.offsets()  # type: ignore[attr-defined]  # of NestedTensor
    return torch.nested.nested_tensor_from_jagged(tensor.repeat_interleave(offsets.diff()), offsets)


def prepare_decoder_attention_mask(
    attention_mask: Tensor | None, input_shape: tuple[int, int], inputs_embeds: Tensor
) -> Tensor:
    """Causal mask joined with the padding mask, to be added to attention scores: [B, 1, S, S]."""
    batch_size, length = input_shape
    device, dtype = inputs_embeds.device, inputs_embeds.dtype
    allowed = torch.ones(length, length, dtype=torch.bool, device=device).tril().expand(batch_size, 1, -1, -1)
    if attention_mask is not None:
        allowed = allowed & attention_mask.bool()[:, None, None, :]
    return torch.zeros_like(allowed, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)
