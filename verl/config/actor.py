# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The policy that trains, and the reference policy."""

from dataclasses import dataclass, field
from typing import Any

from verl.base_config import BaseConfig
from verl.config.batches import check_role
from verl.config.checkpoint import CheckpointConfig
from verl.config.checks import at_least, between, one_of, refuse
from verl.config.engine import FSDPEngineConfig
from verl.config.left_out import QATConfig, RouterReplayConfig
from verl.config.node import Node
from verl.config.optimizer import OptimizerConfig
from verl.config.profiler import ProfilerConfig
from verl.config.rollout_correction import RolloutCorrectionConfig

INFER_TOKENS = 16384
LOSS_AGG_MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")


@dataclass(frozen=True)
class PolicyLossConfig(Node):
    """Which policy loss, and the constants of those that have some."""

    loss_mode: str = "vanilla"
    """Name in the policy-loss registry: vanilla (PPO clip), gspo, geo_mean, cispo, clip_cov, kl_cov …"""
    clip_cov_ratio: float = 0.0002
    """Clip-Cov: share of tokens clipped."""
    clip_cov_lb: float = 1.0
    """Clip-Cov: lower bound of the covariance."""
    clip_cov_ub: float = 5.0
    """Clip-Cov: upper bound of the covariance."""
    kl_cov_ratio: float = 0.0002
    """KL-Cov: share of tokens with a KL penalty."""
    ppo_kl_coef: float = 0.1
    """KL-Cov: its coefficient."""
    rollout_correction: RolloutCorrectionConfig = field(default_factory=RolloutCorrectionConfig)
    """bypass_mode: its settings; the trainer fills them in from `algorithm.rollout_correction`."""


@dataclass(frozen=True)
class ActorConfig(Node):
    """The policy update: batch sizes, loss, optimizer."""

    rollout_n: int = 1
    """Trajectories per prompt; follows `actor_rollout_ref.rollout.n`."""
    strategy: str = "fsdp"
    """Training backend; fsdp and fsdp2 both mean FSDP2."""
    ppo_mini_batch_size: int = 256
    """Prompts per optimizer step over all ranks; each carries `rollout_n` trajectories."""
    ppo_micro_batch_size: int | None = None
    """Refused: counted over all ranks; use `ppo_micro_batch_size_per_gpu`."""
    ppo_micro_batch_size_per_gpu: int | None = None
    """Trajectories per forward and backward pass on one rank, without `use_dynamic_bsz`."""
    use_dynamic_bsz: bool = False
    """Micro-batches by token count instead of by trajectories."""
    ppo_max_token_len_per_gpu: int = 16384
    """Tokens in one micro-batch on one rank, with `use_dynamic_bsz`; at least the longest trajectory."""
    ppo_infer_micro_batch_size_per_gpu: int | None = None
    """Trajectories per pass without gradients; where set, it wins over `rollout.log_prob_micro_batch_size_per_gpu`."""
    ppo_infer_max_token_len_per_gpu: int = INFER_TOKENS
    """Tokens in one such pass; another value than this wins over `rollout.log_prob_max_token_len_per_gpu`."""
    clip_ratio: float = 0.2
    """PPO's clip range on both sides where low and high are left alone, > 0."""
    clip_ratio_low: float = 0.2
    """Clip range below 1."""
    clip_ratio_high: float = 0.2
    """Clip range above 1 (clip-higher, DAPO)."""
    tau_pos: float = 1.0
    """SAPO: temperature for positive advantages."""
    tau_neg: float = 1.05
    """SAPO: temperature for negative advantages."""
    freeze_vision_tower: bool = False
    """Refused when true."""
    policy_loss: PolicyLossConfig = field(default_factory=PolicyLossConfig)
    """The policy loss."""
    clip_ratio_c: float = 3.0
    """Dual clip: bound of the ratio for negative advantages, > 1."""
    loss_agg_mode: str = "token-mean"
    """How token losses become one number."""
    loss_scale_factor: int | None = None
    """Divisor of seq-mean-token-sum-norm; null: the response length."""
    entropy_coeff: float = 0
    """Weight of the entropy bonus."""
    calculate_entropy: bool = False
    """Report entropy though it has no weight in the loss."""
    use_kl_loss: bool = False
    """Add the KL to the reference policy to the loss (GRPO)."""
    use_prefix_grouper: bool = False
    """Refused when true."""
    use_torch_compile: bool = True
    """Without effect: nothing is compiled."""
    kl_loss_coef: float = 0.001
    """Weight of that KL."""
    kl_loss_type: str = "low_var_kl"
    """Its estimator: kl (k1), abs, mse (k2), low_var_kl (k3); with + the gradient of k2."""
    ppo_epochs: int = 1
    """Passes over one batch, ≥ 1."""
    shuffle: bool = False
    """Draw mini-batches in random order."""
    data_loader_seed: int = 1
    """Seed of that order."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """What a checkpoint contains."""
    optim: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimizer and schedule."""
    use_fused_kernels: bool = False
    """Without effect: log-probs are computed in chunks anyway."""
    profiler: ProfilerConfig = field(default_factory=ProfilerConfig)
    """The profiler of this role."""
    router_replay: RouterReplayConfig = field(default_factory=RouterReplayConfig)
    """Router replay, left out."""
    qat: QATConfig = field(default_factory=QATConfig)
    """Quantisation-aware training, left out."""
    engine: Any = field(default_factory=BaseConfig, compare=False, repr=False)
    """The engine's section under the name that it has for every backend; on FSDP2 it is `fsdp_config`."""
    model_config: Any = field(default_factory=BaseConfig, compare=False, repr=False)
    """The model's section; filled in where the sections of a policy come together."""
    global_batch_info: dict[str, Any] = field(default_factory=dict)
    """Size of the whole mini-batch (`batch_num_tokens`, `global_batch_size`, `dp_size`), by which losses divide."""

    def __post_init__(self) -> None:
        at_least(self, 1, "ppo_mini_batch_size", "ppo_micro_batch_size_per_gpu", "ppo_epochs", "rollout_n")
        at_least(self, 1, "ppo_max_token_len_per_gpu")
        between(self, 0, float("inf"), "clip_ratio", "clip_ratio_low", "clip_ratio_high")
        at_least(self, 1, "clip_ratio_c")
        one_of(self, "loss_agg_mode", LOSS_AGG_MODES)
        refuse(self.freeze_vision_tower, "freeze_vision_tower", "training of vision models", "use a text model")
        refuse(self.use_prefix_grouper, "use_prefix_grouper", "prefix grouping", "set use_prefix_grouper=false")
        refuse(
            self.ppo_micro_batch_size,
            "ppo_micro_batch_size",
            "a micro-batch counted over all ranks",
            "set ppo_micro_batch_size_per_gpu",
        )

    def validate(self, n_gpus: int, train_batch_size: int, model_config: Any = None) -> None:
        """Check the batch sizes against a trainer of `n_gpus` ranks and batches of `train_batch_size` prompts.

        `train_batch_size` 0: prompts stream one by one. `model_config` stands for the section of the same name.

        Raises
        ------
        ConfigError
            naming the key to change.
        """
        model = self.model_config if model_config is None else model_config
        packed = model.get("use_remove_padding", self.get("use_remove_padding", False))
        check_role(self, n_gpus, train_batch_size, bool(packed))


@dataclass(frozen=True)
class FSDPActorConfig(ActorConfig):
    """The policy update on FSDP2."""

    grad_clip: float = 1.0
    """Older name of `optim.clip_grad`."""
    ulysses_sequence_parallel_size: int = 1
    """Ranks that share one sequence (DeepSpeed-Ulysses); needs `use_remove_padding`."""
    entropy_from_logits_with_chunking: bool = False
    """Entropy in chunks of tokens, to save memory."""
    entropy_checkpointing: bool = False
    """Compute entropy again in the backward pass, to save memory."""
    fsdp_config: FSDPEngineConfig = field(default_factory=FSDPEngineConfig)
    """The engine."""
    use_remove_padding: bool = False
    """Pack trajectories so that no padding is computed; follows `model.use_remove_padding`."""
    use_rollout_log_probs: bool = False
    """Without effect: algorithm.rollout_correction.bypass_mode decides."""
    calculate_sum_pi_squared: bool = False
    """Compute the sum of squared probabilities with the old log-probs; the optimal token baselines need it."""
    sum_pi_squared_checkpointing: bool = False
    """Without effect: no gradient flows through it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "ulysses_sequence_parallel_size")
        object.__setattr__(self, "engine", self.fsdp_config)


@dataclass(frozen=True)
class RefConfig(Node):
    """The reference policy: log-probs only."""

    rollout_n: int = 1
    """Trajectories per prompt; follows `actor_rollout_ref.rollout.n`."""
    strategy: str = "fsdp"
    """Training backend; follows the actor's."""
    use_torch_compile: bool = True
    """Without effect: nothing is compiled."""
    log_prob_micro_batch_size: int | None = None
    """Refused: counted over all ranks; use `log_prob_micro_batch_size_per_gpu`."""
    log_prob_micro_batch_size_per_gpu: int | None = None
    """Trajectories per forward pass on one rank, without `log_prob_use_dynamic_bsz`."""
    log_prob_use_dynamic_bsz: bool = False
    """Micro-batches by token count; follows the actor's."""
    log_prob_max_token_len_per_gpu: int = 16384
    """Tokens in one micro-batch on one rank; follows the actor's."""
    profiler: ProfilerConfig = field(default_factory=ProfilerConfig)
    """The profiler of this role."""
    router_replay: RouterReplayConfig = field(default_factory=RouterReplayConfig)
    """Router replay, left out."""
    fsdp_config: FSDPEngineConfig = field(default_factory=lambda: FSDPEngineConfig(forward_only=True))
    """The engine."""
    ulysses_sequence_parallel_size: int = 1
    """Ranks that share one sequence; follows the actor's."""
    entropy_from_logits_with_chunking: bool = False
    """Entropy in chunks of tokens, to save memory."""
    entropy_checkpointing: bool = False
    """Compute entropy again in the backward pass, to save memory."""
    model: Any = None
    """A model of its own where the reference is not the actor's start: `{path: …}`."""

    def __post_init__(self) -> None:
        at_least(self, 1, "log_prob_micro_batch_size_per_gpu", "log_prob_max_token_len_per_gpu")
        refuse(
            self.log_prob_micro_batch_size,
            "log_prob_micro_batch_size",
            "a micro-batch counted over all ranks",
            "set log_prob_micro_batch_size_per_gpu",
        )
