# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities, entropy and collision probability from logits, a slice of rows at a time.

Shapes: K rows (any leading dimensions), V vocabulary. Only [chunk, V] of scratch memory lives at once, forward and
backward; the results are float32 whatever the logits' dtype (float64 for float64).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from verl.errors import ConfigError

# 64 MB in float32 for each scratch tensor: small beside the logits, large enough to fill a device.
CHUNK_ELEMENTS = 2**24


def gather_from_labels(data: Tensor, label: Tensor) -> Tensor:
    """The element of the last dimension that each label names: [..., V], [...] -> [...]."""
    return data.gather(-1, label.unsqueeze(-1)).squeeze(-1)


def logprobs_from_logits(logits: Tensor, labels: Tensor, inplace_backward: bool = True) -> Tensor:
    """Log-probability of each label: [..., V], [...] -> [...].

    With `inplace_backward` the gradient is written into the memory of `logits` (unless that is a leaf): pass False
    when the same logits also feed another term of the loss.
    """
    flat = _LogProb.apply(
        logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), inplace_backward and not logits.is_leaf
    )
    return flat.view(labels.shape)


def logprobs_from_logits_naive(logits: Tensor, labels: Tensor) -> Tensor:
    """The same by one full log-softmax; the reference that the chunked form is tested and timed against."""
    return gather_from_labels(logits.to(_wide(logits)).log_softmax(-1), labels)


def entropy_from_logits(logits: Tensor) -> Tensor:
    """Entropy in nats of each row's distribution: [..., V] -> [...]."""
    return entropy_from_logits_with_chunking(logits)


def entropy_from_logits_with_chunking(logits: Tensor, chunk_size: int = 2048) -> Tensor:
    """Entropy with at most `chunk_size` rows of scratch memory (fewer for a large vocabulary): [..., V] -> [...]."""
    return _Entropy.apply(logits.reshape(-1, logits.shape[-1]), chunk_size).view(logits.shape[:-1])


def calculate_sum_pi_squared_from_logits(logits: Tensor) -> Tensor:
    """Collision probability, the sum of squared probabilities, of each row: [..., V] -> [...]."""

    def collision(rows: Tensor) -> Tensor:
        return torch.exp(torch.logsumexp(2 * rows, -1) - 2 * torch.logsumexp(rows, -1))

    return _by_chunk(logits.reshape(-1, logits.shape[-1]), collision).view(logits.shape[:-1])


def _wide(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _chunks(logits_KV: Tensor, most: int | None = None) -> list[slice]:
    rows = max(1, CHUNK_ELEMENTS // logits_KV.shape[-1])
    rows = rows if most is None else min(rows, most)
    return [slice(start, start + rows) for start in range(0, len(logits_KV), rows)]


def _by_chunk(logits_KV: Tensor, function: Callable[[Tensor], Tensor], most: int | None = None) -> Tensor:
    found_K = torch.empty(len(logits_KV), dtype=_wide(logits_KV), device=logits_KV.device)
    for part in _chunks(logits_KV, most):
        found_K[part] = function(logits_KV[part].to(found_K.dtype))
    return found_K


def _saved(ctx: Any) -> tuple[Tensor, ...]:
    try:
        return ctx.saved_tensors
    except RuntimeError as error:
        raise ConfigError(
            "the logits were overwritten before their gradient was complete",
            remedy="logits that feed several terms need logprobs_from_logits(..., inplace_backward=False)",
        ) from error


class _LogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_KV: Tensor, labels_K: Tensor, in_place: bool) -> Tensor:
        lse_K = _by_chunk(logits_KV, lambda rows: torch.logsumexp(rows, -1))
        ctx.save_for_backward(logits_KV, labels_K, lse_K)
        ctx.in_place = in_place
        return gather_from_labels(logits_KV, labels_K).to(lse_K.dtype) - lse_K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_K: Tensor) -> tuple[Tensor, None, None]:
        logits_KV, labels_K, lse_K = _saved(ctx)
        gradient_KV = logits_KV if ctx.in_place else torch.empty_like(logits_KV)
        for part in _chunks(logits_KV):
            rows = (logits_KV[part].to(lse_K.dtype) - lse_K[part, None]).exp_().neg_()
            rows.scatter_add_(-1, labels_K[part, None], torch.ones_like(rows[:, :1]))
            gradient_KV[part] = rows.mul_(grad_K[part, None])
        return gradient_KV, None, None


class _Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_KV: Tensor, most: int) -> Tensor:
        entropy_K = _by_chunk(logits_KV, _entropy, most)
        ctx.save_for_backward(logits_KV, entropy_K)
        ctx.most = most
        return entropy_K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_K: Tensor) -> tuple[Tensor, None]:
        logits_KV, entropy_K = _saved(ctx)
        gradient_KV = torch.empty_like(logits_KV)
        for part in _chunks(logits_KV, ctx.most):
            log_prob = logits_KV[part].to(entropy_K.dtype).log_softmax(-1)
            prob = log_prob.exp()
            # A forbidden token has p log p = 0, not 0 * -inf.
            slope = log_prob.add_(entropy_K[part, None]).clamp_(min=torch.finfo(log_prob.dtype).min)
            gradient_KV[part] = slope.mul_(prob).mul_(-grad_K[part, None])
        return gradient_KV, None


def _entropy(rows: Tensor) -> Tensor:
    log_prob = rows.log_softmax(-1)
    prob = log_prob.exp()
    # A forbidden token (logit -inf) has p log p = 0, not 0 * -inf.
    return -log_prob.clamp_(min=torch.finfo(log_prob.dtype).min).mul_(prob).sum(-1)
