# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The model and its adapters."""

from dataclasses import dataclass, field
from typing import Any

from verl.config.checks import at_least, refuse
from verl.config.left_out import MtpConfig
from verl.config.node import Node


@dataclass(frozen=True)
class HFModelConfig(Node):
    """A Hugging Face model directory or hub name, and how it is loaded."""

    path: str = "~/models/deepseek-llm-7b-chat"
    """Directory or hub name of the weights."""
    hf_config_path: str | None = None
    """Directory of config.json where it is not `path`."""
    tokenizer_path: str | None = None
    """Directory of the tokenizer where it is not `path`."""
    use_shm: bool = False
    """Copy the weights to /dev/shm before loading."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    custom_chat_template: str | None = None
    """A Jinja chat template in place of the tokenizer's."""
    external_lib: str | list[str] | None = None
    """Modules imported first in every process, so that what they register is known there."""
    override_config: dict[str, Any] = field(default_factory=dict)
    """Values put over the model's config.json; `attn_implementation` too."""
    enable_gradient_checkpointing: bool = True
    """Compute activations again in the backward pass."""
    enable_activation_offload: bool = False
    """Refused when true."""
    use_remove_padding: bool = True
    """Pack trajectories so that no padding is computed."""
    lora_rank: int = 0
    """Rank of the adapters; 0 trains all weights."""
    lora_alpha: int = 16
    """Scale of the adapters: alpha / rank."""
    target_modules: str | list[str] | None = "all-linear"
    """Modules that get an adapter."""
    exclude_modules: str | list[str] | None = None
    """Modules that get none."""
    lora_adapter_path: str | None = None
    """Adapter to start from."""
    use_liger: bool = False
    """Refused when true."""
    use_fused_kernels: bool = False
    """Without effect: log-probs are computed in chunks anyway."""
    fused_kernel_options: dict[str, Any] = field(default_factory=lambda: {"impl_backend": "torch"})
    """Without effect."""
    tiled_mlp: dict[str, Any] = field(default_factory=lambda: {"enabled": False, "num_shards": 4})
    """Refused when `enabled`."""
    mtp: MtpConfig = field(default_factory=MtpConfig)
    """Multi-token prediction, left out."""
    attn_implementation: str | None = None
    """flash_attention_2, sdpa, eager …; null: the platform's choice."""

    def __post_init__(self) -> None:
        at_least(self, 0, "lora_rank")
        refuse(
            self.enable_activation_offload,
            "enable_activation_offload",
            "activation offload",
            "use enable_gradient_checkpointing or fsdp_config.param_offload",
        )
        refuse(self.use_liger, "use_liger", "the Liger kernels", "set use_liger=false")
        refuse(self.tiled_mlp.get("enabled"), "tiled_mlp.enabled", "tiled MLP", "set tiled_mlp.enabled=false")

    @property
    def external_libs(self) -> list[str]:
        """`external_lib` as a list: none, one or many."""
        if self.external_lib is None:
            return []
        return [self.external_lib] if isinstance(self.external_lib, str) else list(self.external_lib)

    @property
    def chosen_attn_implementation(self) -> str | None:
        """The attention that the user asked for, at either of the two places; null: the platform decides."""
        return self.attn_implementation or self.override_config.get("attn_implementation")
