# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Training engine: FSDP2 on CPU, CUDA, ROCm and NPU."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from verl.config.checkpoint import CheckpointConfig
from verl.config.checks import at_least, one_of, refuse, require
from verl.config.left_out import QATEngineConfig, RouterReplayConfig
from verl.config.model import HFModelConfig
from verl.config.node import Node
from verl.config.optimizer import OptimizerConfig
from verl.config.profiler import ProfilerConfig

FLOAT_DTYPES = ("fp32", "float32", "fp16", "float16", "half", "bf16", "bfloat16")


@dataclass(frozen=True)
class EngineConfig(Node):
    """What every training backend takes."""

    param_offload: bool = False
    """Keep parameters in host memory between steps."""
    optimizer_offload: bool = False
    """Keep optimizer state in host memory between steps."""
    grad_offload: bool = False
    """Refused when true: gradients are freed after each step."""
    forward_only: bool = False
    """Never trains (reference policy): no gradients, no optimizer."""
    strategy: str | None = None
    """Name in the engine registry; fsdp and fsdp2 both mean FSDP2, null too."""
    dtype: str = "bfloat16"
    """Precision of the forward and backward pass."""
    use_dynamic_bsz: bool = True
    """Micro-batches by token count instead of by trajectories."""
    max_token_len_per_gpu: int | None = None
    """Tokens in one training micro-batch per rank, with `use_dynamic_bsz`."""
    micro_batch_size_per_gpu: int | None = None
    """Trajectories in one training micro-batch per rank, without `use_dynamic_bsz`."""
    infer_max_token_len_per_gpu: int | None = None
    """As `max_token_len_per_gpu`, for passes without gradients."""
    infer_micro_batch_size_per_gpu: int | None = None
    """As `micro_batch_size_per_gpu`, for passes without gradients."""
    use_fused_kernels: bool = False
    """Refused when true: log-probs are computed in chunks anyway."""
    use_remove_padding: bool = True
    """Pack trajectories so that no padding is computed."""
    seed: int = 42
    """Seed of the training ranks."""
    full_determinism: bool = False
    """Deterministic kernels at the cost of speed."""
    router_replay: RouterReplayConfig = field(default_factory=RouterReplayConfig)
    """Router replay, left out."""

    def __post_init__(self) -> None:
        one_of(self, "dtype", FLOAT_DTYPES)
        at_least(self, 1, "max_token_len_per_gpu", "micro_batch_size_per_gpu")
        at_least(self, 1, "infer_max_token_len_per_gpu", "infer_micro_batch_size_per_gpu")
        remedy = "set param_offload and optimizer_offload; gradients are freed after each step"
        refuse(self.grad_offload, "grad_offload", "offload of gradients alone", remedy)
        remedy = "set it to false: log-probs are computed in chunks, without the whole logits"
        refuse(self.use_fused_kernels, "use_fused_kernels", "the fused kernels", remedy)


@dataclass(frozen=True)
class FSDPEngineConfig(EngineConfig):
    """FSDP2."""

    strategy: str | None = "fsdp"
    """fsdp or fsdp2, both FSDP2."""
    wrap_policy: dict[str, Any] = field(default_factory=dict)
    """`transformer_layer_cls_to_wrap`: class names that become one shard group each; else the model's own list."""
    offload_policy: bool = False
    """FSDP2's own CPU offload of parameters, gradients and optimizer state."""
    reshard_after_forward: bool = True
    """Free the gathered parameters between forward and backward."""
    fsdp_size: int = -1
    """Ranks in one shard group; -1: all of them; less than all gives HSDP."""
    forward_prefetch: bool = False
    """Gather the next layer while this one computes."""
    model_dtype: str = "fp32"
    """Precision of the stored parameters."""
    use_orig_params: bool = False
    """FSDP1's; without effect."""
    mixed_precision: dict[str, Any] | None = None
    """`param_dtype`, `reduce_dtype`, `buffer_dtype`; null: `dtype` for parameters, fp32 for reductions."""
    ulysses_sequence_parallel_size: int = 1
    """Ranks that share one sequence; the role's key of this name is the one to set."""
    entropy_from_logits_with_chunking: bool = False
    """Entropy in chunks of tokens, to save memory."""
    use_torch_compile: bool = True
    """Without effect: nothing is compiled."""
    entropy_checkpointing: bool = False
    """Compute entropy again in the backward pass, to save memory."""
    qat: QATEngineConfig = field(default_factory=QATEngineConfig)
    """Quantisation-aware training, left out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "model_dtype", FLOAT_DTYPES)
        at_least(self, 1, "ulysses_sequence_parallel_size")
        require(self.fsdp_size == -1 or self.fsdp_size >= 1, "fsdp_size", self.fsdp_size, "-1 or at least 1")


@dataclass(frozen=True)
class TrainingWorkerConfig(Node):
    """Everything one training worker needs, put together by the caller."""

    model_type: str | None = None
    """language_model or value_model."""
    model_config: HFModelConfig | None = None
    """The model."""
    engine_config: EngineConfig | None = None
    """The engine."""
    optimizer_config: OptimizerConfig | None = None
    """The optimizer; null for a worker that never trains."""
    checkpoint_config: CheckpointConfig | None = None
    """What a checkpoint contains."""
    profiler_config: ProfilerConfig | None = None
    """The profiler."""
    auto_select_engine_optim_fn: Callable[[HFModelConfig, str], tuple[EngineConfig, OptimizerConfig]] | None = None
    """Called with the model and the device type where there is no `engine_config`: engine and optimizer."""
