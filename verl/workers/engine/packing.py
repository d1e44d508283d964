# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Padded batch to packed rows and back; the only place that knows about packing.

B = sequences, S = prompt + response, T = target columns, R = packed rows, L = tokens of a row, N = targets
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, replace
from typing import Any

import torch

from verl.errors import DataError

# One sequence a row needs no mask, which is worth this much padding (measured on CPU with SDPA).
_MAX_PADDING_RATIO = 1.25


@dataclass(frozen=True)
class Packed:
    """Model input without padding, and where each result belongs.

    `source_N` indexes the flattened `[R * L]` hidden states that predict the tokens `target_N`; `slot_N` indexes the
    flattened `[B * T]` result.
    """

    input_ids_RL: torch.Tensor
    position_ids_RL: torch.Tensor
    source_N: torch.Tensor
    target_N: torch.Tensor
    slot_N: torch.Tensor
    num_rows: int
    num_targets: int

    def to(self, device: torch.device | str) -> "Packed":
        """The same plan with its tensors on `device`."""
        moved: dict[str, Any] = {
            name: tensor.to(device) for name, tensor in vars(self).items() if isinstance(tensor, torch.Tensor)
        }
        return replace(self, **moved)

    def unpack(self, value_N: torch.Tensor) -> torch.Tensor:
        """`[B, T]` with zeros where there is no target; gradients flow back to `value_N`."""
        flat = value_N.new_zeros(self.num_rows * self.num_targets)
        return flat.index_put((self.slot_N,), value_N).view(self.num_rows, self.num_targets)


def pack(
    input_ids_BS: torch.Tensor,
    attention_mask_BS: torch.Tensor,
    num_targets: int,
    *,
    single_row: bool,
    remove_padding: bool = True,
    multiple_of: int = 1,
) -> Packed:
    """Lay the valid tokens of a batch into rows.

    The targets are the valid tokens of the last `num_targets` columns; each needs a valid token before it, and the
    first token of a sequence has none (its result stays 0). Positions restart with each sequence, which is what
    varlen kernels and the block-diagonal mask of transformers go by. `single_row` puts all tokens into one row;
    `remove_padding=False` gives each sequence a row of its own. L is rounded up to `multiple_of`.
    """
    if input_ids_BS.dim() != 2 or input_ids_BS.shape != attention_mask_BS.shape:
        raise DataError(
            "input_ids and attention_mask must be two matrices of one shape",
            got=f"{tuple(input_ids_BS.shape)} and {tuple(attention_mask_BS.shape)}",
        )
    valid_BS = attention_mask_BS.bool()
    position_BS = valid_BS.cumsum(-1) - 1
    length_B = valid_BS.sum(-1)
    row_B, offset_B, num_packed_rows, row_len = _lay_out(length_B.tolist(), single_row, remove_padding)
    row_len = -(-row_len // multiple_of) * multiple_of
    place_BS = (row_B * row_len + offset_B)[:, None] + position_BS

    place_K = place_BS[valid_BS]
    ids = input_ids_BS.new_zeros(num_packed_rows * row_len)
    ids[place_K] = input_ids_BS[valid_BS]
    if bool((offset_B == 0).all()):
        # Nothing to keep apart: unbroken positions let the kernel use its plain causal form, without a mask.
        positions = torch.arange(row_len, device=ids.device).expand(num_packed_rows, row_len)
    else:
        positions = torch.zeros_like(ids).index_put((place_K,), position_BS[valid_BS]).view(num_packed_rows, row_len)

    target_BS = valid_BS & (position_BS > 0)
    target_BS[:, : target_BS.shape[1] - num_targets] = False
    sequence_N, column_N = target_BS.nonzero(as_tuple=True)
    return Packed(
        input_ids_RL=ids.view(num_packed_rows, row_len),
        position_ids_RL=positions,
        source_N=place_BS[target_BS] - 1,
        target_N=input_ids_BS[target_BS],
        slot_N=sequence_N * num_targets + column_N - (target_BS.shape[1] - num_targets),
        num_rows=input_ids_BS.shape[0],
        num_targets=num_targets,
    )


def _lay_out(lengths: list[int], single_row: bool, remove_padding: bool) -> tuple[torch.Tensor, torch.Tensor, int, int]:
    """Row and offset of each sequence, number of rows, tokens of a row."""
    count, total, longest = len(lengths), sum(lengths), max([1, *lengths])
    if single_row and remove_padding:
        length_B = torch.tensor(lengths)
        return torch.zeros_like(length_B), length_B.cumsum(0) - length_B, 1, max(1, total)
    if not remove_padding or count * longest <= _MAX_PADDING_RATIO * total:
        return torch.arange(count), torch.zeros(count, dtype=torch.long), count, longest
    rows, offsets, num_rows = _best_fit(lengths, longest)
    return torch.tensor(rows), torch.tensor(offsets), num_rows, longest


def _best_fit(lengths: list[int], capacity: int) -> tuple[list[int], list[int], int]:
    """Longest first, each into the fullest row that still has room (bin packing, at most 11/9 of the optimum)."""
    rows, offsets = [0] * len(lengths), [0] * len(lengths)
    free: list[tuple[int, int]] = []
    num_rows = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        at = bisect_left(free, (lengths[index], -1))
        space, row = free.pop(at) if at < len(free) else (capacity, num_rows)
        num_rows = max(num_rows, row + 1)
        rows[index], offsets[index] = row, capacity - space
        if space > lengths[index]:
            insort(free, (space - lengths[index], row))
    return rows, offsets, num_rows
