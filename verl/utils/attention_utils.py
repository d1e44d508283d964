# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Padded batches to packed tokens and back, for models that a recipe calls itself (the engine has its own packing).

Shapes: B sequences, S columns, N valid tokens; `...` any further dimensions.
"""

from typing import Any

import torch
from torch import Tensor

from verl.utils.import_utils import optional_import

__all__ = ["index_first_axis", "pad_input", "rearrange", "unpad_input"]


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """Rows of the first dimension: [n, ...], [N] -> [N, ...]; differentiable."""
    return input.index_select(0, indices)


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """The valid tokens of [B, S, ...], and what a varlen attention kernel asks for.

    Returns the tokens [N, ...], their places in the flattened [B * S], the borders of the sequences (int32, B + 1),
    the longest length, and the lengths without `unused_mask`'s tokens [B]. Tokens that only `unused_mask` marks are
    laid out, too.
    """
    laid_out = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = laid_out.sum(dim=-1, dtype=torch.int32)
    indices = laid_out.flatten().nonzero().flatten()
    borders = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    tokens = index_first_axis(hidden_states.flatten(0, 1), indices)
    return tokens, indices, borders, int(lengths.max()), attention_mask.sum(dim=-1, dtype=torch.int32)


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """Tokens [N, ...] back at their places in [B, S, ...], zeros elsewhere; differentiable."""
    flat = hidden_states.new_zeros(batch * seqlen, *hidden_states.shape[1:])
    return flat.index_copy(0, indices, hidden_states).unflatten(0, (batch, seqlen))


def rearrange(tensor: Tensor, pattern: str, **axes_lengths: Any) -> Tensor:
    """`einops.rearrange`."""
    return optional_import("einops", needed_for="rearrange").rearrange(tensor, pattern, **axes_lengths)
