# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sequence parallelism by all-to-all (Jacobs et al., DeepSpeed Ulysses, 2023, arXiv 2309.14509).

Each of P ranks holds a slice of every sequence with all heads; around attention an all-to-all turns it into whole
sequences with a slice of the heads. For recipes that call their model themselves. Without a group (neither given nor
set) every function leaves its tensor alone.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from verl.errors import ConfigError

__all__ = [
    "Gather",
    "SeqAllToAll",
    "all_gather_tensor",
    "all_to_all_tensor",
    "gather_heads_scatter_seq",
    "gather_outputs_and_unpad",
    "gather_seq_scatter_heads",
    "get_ulysses_sequence_parallel_group",
    "get_ulysses_sequence_parallel_rank",
    "get_ulysses_sequence_parallel_world_size",
    "set_ulysses_sequence_parallel_group",
    "slice_input_tensor",
    "ulysses_pad",
    "ulysses_pad_and_slice_inputs",
    "validate_ulysses_config",
]

_group: ProcessGroup | None = None


def set_ulysses_sequence_parallel_group(group: ProcessGroup | None) -> None:
    """The group that the functions below use where none is given."""
    global _group
    _group = group


def get_ulysses_sequence_parallel_group() -> ProcessGroup | None:
    """The group that was set."""
    return _group


def get_ulysses_sequence_parallel_world_size(group: ProcessGroup | None = None) -> int:
    """Number of ranks that share a sequence; 1 without a group."""
    group = group or _group
    return dist.get_world_size(group) if group is not None else 1


def get_ulysses_sequence_parallel_rank(group: ProcessGroup | None = None) -> int:
    """Which slice of the sequence is this rank's; 0 without a group."""
    group = group or _group
    return dist.get_rank(group) if group is not None else 0


# ---- around attention ---------------------------------------------------------------------------------------------


def gather_seq_scatter_heads(
    x: Tensor, seq_dim: int, head_dim: int, unpadded_dim_size: int = 0, group: ProcessGroup | None = None
) -> Tensor:
    """Slice of the sequence with all heads → whole sequence with a slice of the heads; differentiable.

    `unpadded_dim_size`: length of the whole sequence without the padding that made it divisible.
    """
    group = group or _group
    if group is None:
        return x
    x = SeqAllToAll.apply(group, x, head_dim, seq_dim)
    return x.narrow(seq_dim, 0, unpadded_dim_size) if unpadded_dim_size else x


def gather_heads_scatter_seq(x: Tensor, head_dim: int, seq_dim: int, group: ProcessGroup | None = None) -> Tensor:
    """Whole sequence with a slice of the heads → slice of the sequence with all heads; differentiable.

    A sequence that does not divide is padded with zeros at its end.
    """
    group = group or _group
    if group is None:
        return x
    return SeqAllToAll.apply(group, _pad_to_multiple(x, seq_dim, dist.get_world_size(group)), seq_dim, head_dim)


class SeqAllToAll(torch.autograd.Function):
    """`all_to_all_tensor` whose backward pass is the opposite exchange."""

    @staticmethod
    def forward(
        ctx: Any, group: ProcessGroup, local_input: Tensor, scatter_dim: int, gather_dim: int, async_op: bool = False
    ) -> Any:
        ctx.group, ctx.scatter_dim, ctx.gather_dim = group, scatter_dim, gather_dim
        return all_to_all_tensor(local_input, scatter_dim, gather_dim, group, async_op)

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[None, Tensor, None, None, None]:
        grad = all_to_all_tensor(grad_output[0].contiguous(), ctx.gather_dim, ctx.scatter_dim, ctx.group)
        return None, grad, None, None, None


def all_to_all_tensor(
    local_input: Tensor, scatter_dim: int, gather_dim: int, group: ProcessGroup | None = None, async_op: bool = False
) -> Any:
    """Cut `scatter_dim` over the ranks and join what they send along `gather_dim`.

    With `async_op` the result is a function that waits for it.
    """
    group = group or _group
    ranks = get_ulysses_sequence_parallel_world_size(group)
    if local_input.shape[scatter_dim] % ranks:
        raise ConfigError(
            "the dimension does not divide over the ranks", got=local_input.shape[scatter_dim], expected=f"k * {ranks}"
        )
    sent = torch.stack(local_input.tensor_split(ranks, dim=scatter_dim))
    received = torch.empty_like(sent)
    work = dist.all_to_all_single(received, sent, group=group, async_op=async_op)

    def join() -> Tensor:
        if work is not None:
            work.wait()
        return torch.cat(received.unbind(0), dim=gather_dim)

    return join if async_op else join()


# ---- before and after the model -----------------------------------------------------------------------------------


def slice_input_tensor(x: Tensor, dim: int, padding: bool = True, group: ProcessGroup | None = None) -> Tensor:
    """This rank's slice along `dim`; with `padding` a length that does not divide gets zeros at its end."""
    group = group or _group
    ranks = get_ulysses_sequence_parallel_world_size(group)
    if padding:
        x = _pad_to_multiple(x, dim, ranks)
    return x.tensor_split(ranks, dim=dim)[get_ulysses_sequence_parallel_rank(group)].contiguous()


def ulysses_pad(
    input_ids_rmpad: Tensor, position_ids_rmpad: Tensor | None = None, sp_size: int = 1, pad_value: int = 0
) -> tuple[Tensor, Tensor | None, int]:
    """Lengthen packed tokens [1, N] to a multiple of `sp_size`; returns ids, positions, number of tokens added.

    The added tokens are a sequence of their own: their positions start at 0. Positions may have more leading
    dimensions.
    """
    if position_ids_rmpad is not None and position_ids_rmpad.shape[-1] != input_ids_rmpad.shape[1]:
        raise ConfigError(
            "positions and tokens differ in number",
            got=f"{tuple(position_ids_rmpad.shape)} and {tuple(input_ids_rmpad.shape)}",
        )
    added = -input_ids_rmpad.shape[1] % sp_size
    if added == 0:
        return input_ids_rmpad, position_ids_rmpad, 0
    ids = torch.nn.functional.pad(input_ids_rmpad, (0, added), value=pad_value)
    if position_ids_rmpad is None:
        return ids, None, added
    more = torch.arange(added, device=ids.device).expand(*position_ids_rmpad.shape[:-1], added)
    return ids, torch.cat([position_ids_rmpad, more.to(position_ids_rmpad.dtype)], dim=-1), added


def ulysses_pad_and_slice_inputs(
    input_ids_rmpad: Tensor,
    position_ids_rmpad: Tensor | None = None,
    sp_size: int = 1,
    skip_position_ids_rmpad: bool = False,
    pad_value: int = 0,
) -> tuple[Tensor, Tensor | None, int]:
    """`ulysses_pad`, and then this rank's slice; `skip_position_ids_rmpad` leaves the positions whole."""
    ids, positions, added = ulysses_pad(input_ids_rmpad, position_ids_rmpad, sp_size, pad_value)
    if sp_size <= 1:
        return ids, positions, added
    ids = slice_input_tensor(ids, dim=1, padding=False)
    if positions is not None and not skip_position_ids_rmpad:
        positions = slice_input_tensor(positions, dim=-1, padding=False)
    return ids, positions, added


def gather_outputs_and_unpad(
    x: Tensor,
    gather_dim: int,
    unpad_dim: int | None = None,
    padding_size: int = 0,
    grad_scaler: bool = True,
    group: ProcessGroup | None = None,
) -> Tensor:
    """The slices of all ranks joined along `gather_dim`, less the last `padding_size` along `unpad_dim`.

    Every rank then computes the same loss. With `grad_scaler` a rank's gradient is multiplied by the number of ranks,
    which undoes the averaging of data parallelism over ranks that share a sequence.
    """
    group = group or _group
    if group is None:
        return x
    x = Gather.apply(group, x, gather_dim, grad_scaler)
    if unpad_dim is None or padding_size == 0:
        return x
    return x.narrow(unpad_dim, 0, x.shape[unpad_dim] - padding_size)


class Gather(torch.autograd.Function):
    """Join along a dimension; backward gives each rank the gradient of its own slice."""

    @staticmethod
    def forward(
        ctx: Any,
        group: ProcessGroup,
        local_tensor: Tensor,
        gather_dim: int,
        grad_scaler: bool = True,
        async_op: bool = False,
    ) -> Tensor:
        ctx.group, ctx.dim, ctx.length = group, gather_dim, local_tensor.shape[gather_dim]
        ctx.scale = dist.get_world_size(group) if grad_scaler else 1
        parts = all_gather_tensor(local_tensor.contiguous().unsqueeze(0), group)
        return torch.cat(parts.unbind(0), dim=gather_dim)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        mine = grad_output.narrow(ctx.dim, dist.get_rank(ctx.group) * ctx.length, ctx.length)
        return None, mine.contiguous() * ctx.scale, None, None, None


def all_gather_tensor(local_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False) -> Any:
    """[n, ...] of every rank as [P * n, ...]; with `async_op`, a function that waits for it."""
    group = group or _group
    ranks = get_ulysses_sequence_parallel_world_size(group)
    joined = local_tensor.new_empty(ranks * local_tensor.shape[0], *local_tensor.shape[1:])
    work = dist.all_gather_into_tensor(joined, local_tensor.contiguous(), group=group, async_op=async_op)
    if not async_op:
        return joined

    def wait() -> Tensor:
        work.wait()
        return joined

    waiting: Callable[[], Tensor] = wait
    return waiting


def validate_ulysses_config(num_heads: int, ulysses_sequence_size: int) -> None:
    """Refuse a number of ranks over which the heads do not divide."""
    if num_heads % ulysses_sequence_size:
        raise ConfigError(
            "the attention heads do not divide over the ranks that share a sequence",
            where="ulysses_sequence_parallel_size",
            got=ulysses_sequence_size,
            expected=f"a divisor of {num_heads}",
        )


def _pad_to_multiple(x: Tensor, dim: int, multiple: int) -> Tensor:
    missing = -x.shape[dim] % multiple
    if missing == 0:
        return x
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x, x.new_zeros(shape)], dim=dim)
