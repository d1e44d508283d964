# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""FLOPs of a training step from a model's configuration, and model FLOPs utilisation.

A token costs 6 FLOPs for each parameter that multiplies it (2 forward, 4 backward) and attention costs
`6 s k (d_qk + d_v)` a head and layer, with s the length and k the keys a token looks at (Kaplan et al. 2020,
arXiv 2001.08361; attention term: Chowdhery et al. 2022, arXiv 2204.02311, appendix B). Read by attribute from any
configuration in Hugging Face's vocabulary; the causal half of attention is counted in full, as is usual.
"""

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

from verl.platform import current_platform

logger = logging.getLogger(__name__)

_UNITS = {"B": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
# Two matrices in the feed-forward block; every other family gates it and has three.
_UNGATED = frozenset({"apertus", "gpt2", "gpt_neox", "opt", "phi", "starcoder2"})


def get_device_flops(unit: str = "T", device_name: str | None = None) -> float:
    """Peak dense bf16 FLOP/s of a device; infinity for an unknown one, so that its utilisation reads 0."""
    peak = current_platform().peak_flops(device_name)
    return math.inf if peak is None else peak / _UNITS[unit]


class FlopsCounter:
    """Counts for one model; `config` is its Hugging Face configuration."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.text = getattr(config, "text_config", None) or config
        self.known = getattr(self.text, "hidden_size", None) is not None
        if not self.known:
            logger.warning("FLOPs of model type %r are not known: no MFU", getattr(config, "model_type", None))

    def estimate_flops(self, batch_seqlens: Sequence[int], delta_time: float, **kargs: Any) -> tuple[float, float]:
        """(TFLOP/s achieved by forward and backward over these sequences, peak TFLOP/s of one device).

        `images_seqlens`: patches of each image, for a model with a vision tower.
        """
        if delta_time <= 0:
            return 0.0, get_device_flops("T")
        total = self.training_flops(batch_seqlens, kargs.get("images_seqlens") or ())
        return total / delta_time / _UNITS["T"], get_device_flops("T")

    def training_flops(self, seqlens: Sequence[int], images_seqlens: Sequence[int] = ()) -> float:
        """Forward and backward over sequences of these lengths; 0 for a model that cannot be read."""
        if not self.known:
            return 0.0
        layers = range(self.text.num_hidden_layers)
        params = sum(_layer_params(self.text, layer) for layer in layers)
        # Embedding and head both, tied or not: the figure that published numbers use.
        params += 2 * self.text.vocab_size * self.text.hidden_size
        attention = sum(_attention_flops(self.text, layer, seqlens) for layer in layers)
        return 6.0 * params * sum(seqlens) + attention + self._vision_flops(images_seqlens)

    def _vision_flops(self, seqlens: Sequence[int]) -> float:
        vision = getattr(self.config, "vision_config", None)
        if vision is None or not seqlens:
            return 0.0
        width = getattr(vision, "embed_dim", None) or vision.hidden_size
        depth = getattr(vision, "depth", None) or vision.num_hidden_layers
        inner = getattr(vision, "intermediate_size", None) or int(width * getattr(vision, "mlp_ratio", 4))
        patch = getattr(vision, "patch_size", 14) ** 2 * getattr(vision, "temporal_patch_size", 1)
        merged = width * getattr(vision, "spatial_merge_size", 1) ** 2
        params = depth * (4 * width**2 + 2 * width * inner) + getattr(vision, "in_channels", 3) * patch * width
        # The merger works once for each merged group of patches.
        merger = (merged**2 + merged * self.text.hidden_size) * width / merged
        return 6.0 * (params + merger) * sum(seqlens) + 12.0 * depth * width * _squares(seqlens)


def model_flops_utilization(
    counter: FlopsCounter, seqlens: Sequence[int], seconds: float, num_devices: int = 1, forward_only: bool = False
) -> float | None:
    """Share of the peak that was used, or None where model or device are not known; a forward pass is a third."""
    achieved, peak = counter.estimate_flops(seqlens, seconds)
    if not counter.known or not math.isfinite(peak) or seconds <= 0:
        return None
    return achieved / peak / num_devices / (3 if forward_only else 1)


def _squares(lengths: Iterable[int]) -> float:
    return float(sum(length * length for length in lengths))


def _head_dims(text: Any) -> tuple[int, int]:
    """Width of a head's queries and of its values."""
    if getattr(text, "kv_lora_rank", None):
        return text.qk_nope_head_dim + text.qk_rope_head_dim, text.v_head_dim
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return width, width


def _layer_params(text: Any, layer: int) -> float:
    """Parameters that one token multiplies in a layer: attention, and the feed-forward block or its chosen experts."""
    return _attention_params(text) + (_expert_params(text) if _is_sparse(text, layer) else _dense_params(text))


def _attention_params(text: Any) -> float:
    hidden, heads = text.hidden_size, text.num_attention_heads
    qk, v = _head_dims(text)
    rank = getattr(text, "kv_lora_rank", None)
    if rank:
        q_rank = getattr(text, "q_lora_rank", None)
        query = q_rank * (hidden + heads * qk) if q_rank else hidden * heads * qk
        keys = hidden * (rank + text.qk_rope_head_dim) + rank * heads * (text.qk_nope_head_dim + v)
        return query + keys + heads * v * hidden
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    return hidden * (heads + 2 * kv_heads) * qk + heads * v * hidden


def _dense_params(text: Any) -> float:
    matrices = 2 if getattr(text, "model_type", "") in _UNGATED else 3
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    return matrices * text.hidden_size * inner


def _num_experts(text: Any) -> int:
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return next((count for name in names if (count := getattr(text, name, None))), 0)


def _is_sparse(text: Any, layer: int) -> bool:
    if not _num_experts(text) or layer in (getattr(text, "mlp_only_layers", None) or ()):
        return False
    if layer < (getattr(text, "first_k_dense_replace", None) or 0):
        return False
    return (layer + 1) % (getattr(text, "decoder_sparse_step", None) or 1) == 0


def _expert_params(text: Any) -> float:
    hidden = text.hidden_size
    inner = getattr(text, "moe_intermediate_size", None) or text.intermediate_size
    shared = getattr(text, "shared_expert_intermediate_size", None) or 0
    shared += (getattr(text, "n_shared_experts", None) or 0) * inner
    return hidden * _num_experts(text) + 3 * hidden * (text.num_experts_per_tok * inner + shared)


def _attention_flops(text: Any, layer: int, seqlens: Sequence[int]) -> float:
    kinds = getattr(text, "layer_types", None)
    kind = kinds[layer] if kinds else "full_attention"
    if kind == "linear_attention":
        return 0.0
    window = getattr(text, "sliding_window", None) if kind == "sliding_attention" else None
    pairs = sum(length * min(length, window) for length in seqlens) if window else _squares(seqlens)
    return 6.0 * text.num_attention_heads * sum(_head_dims(text)) * pairs
