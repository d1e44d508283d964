# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The model and its adapters."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from verl.config.checks import at_least, one_of, refuse
from verl.config.left_out import MtpConfig
from verl.config.node import Node

MODEL_TYPES = ("language_model", "value_model")
# Fields that are worked out from the others, most of them by reading the model's files: at the first question, in the
# process that asks, unless they were given.
WORKED_OUT = (
    "hf_config_path",
    "tokenizer_path",
    "local_path",
    "local_hf_config_path",
    "local_tokenizer_path",
    "hf_config",
    "generation_config",
    "tokenizer",
    "processor",
    "architectures",
)


def _unasked() -> Any:
    # A factory instead of a plain default: that would stand in the class, and nobody would be asked.
    return None


@dataclass(frozen=True)
class HFModelConfig(Node):
    """A Hugging Face model directory or hub name, and how it is loaded.

    Walking the section as a mapping (`{**section}`) shows what was stated; asking for a field works it out.
    """

    path: str = "~/models/deepseek-llm-7b-chat"
    """Directory or hub name of the weights."""
    hf_config_path: str | None = field(default_factory=_unasked)
    """Directory of config.json; null: `path`."""
    tokenizer_path: str | None = field(default_factory=_unasked)
    """Directory of the tokenizer; null: `path`."""
    local_path: str | None = field(default_factory=_unasked, compare=False, repr=False)
    """`path` on this machine: a remote one is copied, with `use_shm` into /dev/shm."""
    local_hf_config_path: str | None = field(default_factory=_unasked, compare=False, repr=False)
    """`hf_config_path` on this machine."""
    local_tokenizer_path: str | None = field(default_factory=_unasked, compare=False, repr=False)
    """`tokenizer_path` on this machine."""
    model_type: str = "language_model"
    """language_model, or value_model for a head with one number per token."""
    load_tokenizer: bool = True
    """false: `tokenizer` and `processor` are null."""
    hf_config: Any = field(default_factory=_unasked, compare=False, repr=False)
    """The configuration of transformers, with `override_config` and the tokenizer's special tokens."""
    generation_config: Any = field(default_factory=_unasked, compare=False, repr=False)
    """The model's own sampling defaults; null where it has none."""
    tokenizer: Any = field(default_factory=_unasked, compare=False, repr=False)
    """The tokenizer, with `custom_chat_template`."""
    processor: Any = field(default_factory=_unasked, compare=False, repr=False)
    """The processor of a multi-modal model; null for a text model."""
    architectures: list[str] | None = field(default_factory=_unasked, compare=False, repr=False)
    """Class names in the model's configuration."""
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
    target_parameters: list[str] | None = None
    """Refused when it names one: adapters on bare parameters cannot be merged for the rollout."""
    exclude_modules: str | list[str] | None = None
    """Modules that get none."""
    lora: dict[str, Any] = field(default_factory=dict)
    """Megatron's adapters; of its keys `merge` counts, a `rank` above 0 is refused."""
    lora_adapter_path: str | None = None
    """Adapter to start from."""
    use_liger: bool = False
    """Refused when true."""
    use_fused_kernels: bool = False
    """Without effect: log-probs are computed in chunks anyway."""
    fused_kernel_options: dict[str, Any] = field(default_factory=dict)
    """Without effect."""
    tiled_mlp: dict[str, Any] = field(default_factory=lambda: {"enabled": False, "num_shards": 4})
    """Refused when `enabled`."""
    mtp: MtpConfig = field(default_factory=MtpConfig)
    """Multi-token prediction, left out."""
    attn_implementation: str | None = None
    """flash_attention_2, sdpa, eager …; null: the platform's choice."""

    def __post_init__(self) -> None:
        for name in WORKED_OUT:
            if self.__dict__[name] is None:
                del self.__dict__[name]
        at_least(self, 0, "lora_rank")
        one_of(self, "model_type", MODEL_TYPES)
        remedy = "name linear layers in target_modules"
        refuse(self.target_parameters, "target_parameters", "adapters on bare parameters", remedy)
        refuse((self.lora.get("rank") or 0) > 0, "lora.rank", "adapters of Megatron", "set lora_rank")
        refuse(
            self.enable_activation_offload,
            "enable_activation_offload",
            "activation offload",
            "use enable_gradient_checkpointing or fsdp_config.param_offload",
        )
        refuse(self.use_liger, "use_liger", "the Liger kernels", "set use_liger=false")
        refuse(self.tiled_mlp.get("enabled"), "tiled_mlp.enabled", "tiled MLP", "set tiled_mlp.enabled=false")

    def __getattr__(self, name: str) -> Any:
        if name not in WORKED_OUT:
            return super().__getattr__(name)
        if name in ("hf_config_path", "tokenizer_path"):
            return self.path
        from verl.models.model_files import read

        found = self.__dict__.setdefault("_found", {})
        if name not in found:
            found[name] = read(self, name)
        return found[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in super().__iter__() if name not in WORKED_OUT or name in self.__dict__)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getstate__(self) -> dict[str, Any]:
        # What was found lies on this machine; another one looks for itself.
        return {name: value for name, value in self.__dict__.items() if name != "_found"}

    def get_processor(self) -> Any:
        """The processor of a multi-modal model, the tokenizer of a text model."""
        return self.tokenizer if self.processor is None else self.processor

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
