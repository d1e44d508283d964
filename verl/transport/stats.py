# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a finished transfer says of itself."""

from dataclasses import dataclass, field

import torch

DEFAULT_DEADLINE_S = 120.0
"""Longest wait for one message; an export of a large model makes its receiver wait for whole layers."""


@dataclass(frozen=True)
class TransferStats:
    """One finished transfer; `bytes` counts tensor bytes once, without padding, `digest` is the content digest."""

    version: int
    bytes: int
    tensors: int
    buckets: int
    seconds: float
    digest: str
    medium: str = "shm"


@dataclass(frozen=True)
class StagedWeights:
    """A whole verified version in memory of its own; `checksums` are per tensor, in the order sent."""

    version: int
    tensors: dict[str, torch.Tensor]
    digest: str
    manifest: str
    nbytes: int
    checksums: dict[str, int] = field(repr=False, default_factory=dict)


def text_of(digest: int) -> str:
    return f"{digest:016x}"
