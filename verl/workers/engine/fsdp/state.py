# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Weights out of a sharded model: full tensors one by one, under their published names."""

from collections.abc import Iterator

import torch
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from verl.models.load import checkpoint_entries
from verl.models.lora import merged_tensors
from verl.utils.checkpoint.sharded_state import named_tensors


def gather_full(tensor: torch.Tensor) -> torch.Tensor:
    """The whole tensor on every rank; a collective where the tensor is sharded over several ranks."""
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def iterate_full_tensors(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in full, adapters merged, dtype kept, tied tensors once, persistent buffers as well.

    Sharded tensors are gathered one at a time, so that no rank ever holds the whole model. Each rank must run the
    iterator to its end: the gathers are collectives.
    """
    for name, full in merged_tensors(model, gather_full, named_tensors(model)):
        yield from checkpoint_entries(model, name, full)
