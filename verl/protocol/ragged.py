# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Padding stays at home: tensors of a padded batch as the runs of their real tokens, and back, value for value.

A run is known from the attention mask: row b holds prompt tokens at P - prompt_len[b] … P and response tokens from
there on. A tensor is stripped if everything outside its runs equals the row's first and last element; else it travels
whole. (A masked product leaves both zeros, 0.0 and -0.0: these are equal, and only there a sign may change.)
Integers travel in the smallest type that holds them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from verl.protocol.fields import TENSORS

# Below this a copy costs less than looking for padding.
MIN_BYTES = 1 << 20
# Where less than a fifth is padding, taking it out and putting it back costs more than carrying it.
MAX_FILL = 0.8

# NumPy has no such types; their bits are compared instead.
_BITS = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.int8, torch.float8_e5m2: torch.int8}


@dataclass(frozen=True)
class Runs:
    """Where each row's real tokens are: [start, end) of each of the B rows, for a tensor as wide as its letter says."""

    starts_B: np.ndarray
    ends_B: np.ndarray


@dataclass(frozen=True)
class Stripped:
    """One tensor without its padding.

    `tokens_K` holds the runs one after another, `first_B` and `last_B` what fills the rows before and after them.
    """

    letter: str
    dtype: str
    width: int
    tokens_K: np.ndarray
    first_B: np.ndarray
    last_B: np.ndarray


def find_runs(tensors: Mapping[str, torch.Tensor]) -> dict[str, Runs] | None:
    """Runs for the widths P (prompts), T (responses) and S (both); None where stripping is not worth while."""
    prompts, mask = tensors.get("prompts"), tensors.get("attention_mask")
    if prompts is None or mask is None or prompts.is_nested or mask.is_nested or mask.dim() != 2 or mask.is_cuda:
        return None
    width_P, width_S = prompts.shape[1], mask.shape[1]
    total_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values() if not tensor.is_nested)
    if total_bytes < MIN_BYTES or not 0 < width_P < width_S:
        return None
    real = mask.bool()
    prompt_len_B, response_len_B = (part.sum(1).numpy() for part in (real[:, :width_P], real[:, width_P:]))
    if (prompt_len_B.sum() + response_len_B.sum()) > MAX_FILL * mask.numel():
        return None
    zero_B = np.zeros_like(prompt_len_B)
    return {
        "P": Runs(width_P - prompt_len_B, zero_B + width_P),
        "T": Runs(zero_B, response_len_B),
        "S": Runs(width_P - prompt_len_B, width_P + response_len_B),
    }


def strip(key: str, tensor: torch.Tensor, runs: Mapping[str, Runs], widths: Mapping[str, int]) -> Stripped | None:
    """The tensor without padding; None where that would lose something."""
    letter = _letter(key, tensor, widths)
    if letter is None:
        return None
    array_BW = tensor.detach().contiguous().view(_BITS.get(tensor.dtype, tensor.dtype)).numpy()
    spans = list(zip(array_BW, runs[letter].starts_B.tolist(), runs[letter].ends_B.tolist(), strict=True))
    if not all((row[:start] == row[0]).all() and (row[end:] == row[-1]).all() for row, start, end in spans):
        return None
    tokens_K = np.concatenate([row[start:end] for row, start, end in spans])
    if array_BW.dtype.kind == "i" and not tensor.is_floating_point():
        tokens_K = _narrowed(tokens_K)
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Stripped(letter, dtype, array_BW.shape[1], tokens_K, array_BW[:, 0].copy(), array_BW[:, -1].copy())


def restore(stripped: Stripped, runs: Mapping[str, Runs]) -> torch.Tensor:
    """The tensor as it was."""
    run = runs[stripped.letter]
    array_BW = np.empty((len(stripped.first_B), stripped.width), stripped.first_B.dtype)
    offset = 0
    for row, start, end, first, last in zip(
        array_BW, run.starts_B.tolist(), run.ends_B.tolist(), stripped.first_B, stripped.last_B, strict=True
    ):
        row[:start], row[end:] = first, last
        row[start:end] = stripped.tokens_K[offset : offset + end - start]
        offset += end - start
    return torch.from_numpy(array_BW).view(getattr(torch, stripped.dtype))


def _letter(key: str, tensor: torch.Tensor, widths: Mapping[str, int]) -> str | None:
    """Which of the widths the tensor has; where two are equal, the glossary knows."""
    if tensor.is_nested or tensor.dim() != 2 or tensor.device.type != "cpu" or tensor.is_complex():
        return None
    fitting = [letter for letter, width in widths.items() if width == tensor.shape[1]]
    known = TENSORS[key].shape[-1] if key in TENSORS else ""
    return known if known in fitting else (fitting[0] if fitting else None)


def _narrowed(tokens_K: np.ndarray) -> np.ndarray:
    if not tokens_K.size:
        return tokens_K
    low, high = tokens_K.min(), tokens_K.max()
    for dtype in (np.int8, np.int16, np.int32):
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max and np.dtype(dtype).itemsize < tokens_K.itemsize:
            return tokens_K.astype(dtype)
    return tokens_K
