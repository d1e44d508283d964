# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From packed tokens to log-probs, entropy or values, in chunks so that `[N, V]` never exists as a whole.

R = packed rows, L = tokens of a row, N = targets, H = hidden, V = vocabulary
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PretrainedConfig, PreTrainedModel

from verl.algorithms.logits import calculate_sum_pi_squared_from_logits
from verl.models.value_head import value_head
from verl.workers.engine.packing import Packed

# Logits of a chunk: 2^26 fp32 numbers are 256 MB, about 440 tokens of a 152k vocabulary.
_CHUNK_LOGITS = 1 << 26
_SMALL_CHUNK_TOKENS = 2048


@dataclass(frozen=True)
class ForwardOptions:
    """What one forward pass computes.

    `temperature` divides the logits; `small_chunks` bounds a chunk to 2048 tokens
    (`entropy_from_logits_with_chunking`); `recompute` rebuilds logits in the backward pass
    (`entropy_checkpointing`), which also happens whenever there are several chunks.
    """

    temperature: float = 1.0
    entropy: bool = False
    sum_pi_squared: bool = False
    small_chunks: bool = False
    recompute: bool = False


class PolicyScorer(nn.Module):
    """A causal language model that answers with the log-prob of each target: `{name: [N]}` in fp32.

    Beside it, where asked for, the `entropy` of the distribution and `sum_pi_squared`, its collision probability.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, packed: Packed, options: ForwardOptions) -> dict[str, torch.Tensor]:
        hidden_NH = target_hidden(self.model, packed)
        head = self.model.get_output_embeddings()
        adjust = logit_adjustment(self.model.config)

        def score(hidden_CH: torch.Tensor, target_C: torch.Tensor) -> tuple[torch.Tensor, ...]:
            logits_CV = adjust(head(hidden_CH).float()) / options.temperature
            found = [-F.cross_entropy(logits_CV, target_C, reduction="none")]
            if options.entropy:
                found.append(_entropy(logits_CV))
            if options.sum_pi_squared:
                found.append(calculate_sum_pi_squared_from_logits(logits_CV))
            return tuple(found)

        chunk = _chunk_tokens(self.model.config.get_text_config().vocab_size, options)
        recompute = torch.is_grad_enabled() and (options.recompute or hidden_NH.shape[0] > chunk)
        parts = [
            checkpoint(score, hidden, target, use_reentrant=False) if recompute else score(hidden, target)
            for hidden, target in zip(hidden_NH.split(chunk), packed.target_N.split(chunk), strict=True)
        ]
        wanted = {"log_probs": True, "entropy": options.entropy, "sum_pi_squared": options.sum_pi_squared}
        names = [name for name, asked_for in wanted.items() if asked_for]
        return {name: torch.cat(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}


class ValueScorer(nn.Module):
    """A token classifier with one output: `{"values": [N]}`, the value of the state before each target, in fp32."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, packed: Packed, options: ForwardOptions) -> dict[str, torch.Tensor]:
        hidden_NH = target_hidden(self.model, packed)
        # A copy: FSDP2 hooks the backward pass on what leaves the module, which must not be a view.
        return {"values": value_head(self.model)(hidden_NH).squeeze(-1).to(torch.float32, copy=True)}


def target_hidden(model: PreTrainedModel, packed: Packed) -> torch.Tensor:
    """Last hidden states `[N, H]` at the positions that predict the targets."""
    hidden_RLH = model.base_model(
        input_ids=packed.input_ids_RL, position_ids=packed.position_ids_RL, use_cache=False
    ).last_hidden_state
    return hidden_RLH.flatten(0, 1).index_select(0, packed.source_N)


def logit_adjustment(config: PretrainedConfig) -> Callable[[torch.Tensor], torch.Tensor]:
    """What a model family does to its logits after the head: soft cap (Gemma), scale (Cohere), divisor (Granite)."""
    text = config.get_text_config()
    cap = getattr(text, "final_logit_softcapping", None)
    scale = getattr(text, "logit_scale", None)
    divisor = getattr(text, "logits_scaling", None)

    def adjust(logits_CV: torch.Tensor) -> torch.Tensor:
        if scale is not None:
            logits_CV = logits_CV * scale
        if divisor is not None:
            logits_CV = logits_CV / divisor
        return logits_CV if cap is None else torch.tanh(logits_CV / cap) * cap

    return adjust


def _entropy(logits_CV: torch.Tensor) -> torch.Tensor:
    """`H = log Σ exp(z) - Σ softmax(z) z`."""
    return torch.logsumexp(logits_CV, -1) - (torch.softmax(logits_CV, -1) * logits_CV).sum(-1)


def _chunk_tokens(vocab_size: int, options: ForwardOptions) -> int:
    tokens = max(1, _CHUNK_LOGITS // vocab_size)
    return min(tokens, _SMALL_CHUNK_TOKENS) if options.small_chunks else tokens
