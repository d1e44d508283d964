# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sections that upstream's files carry and this package leaves out: accepted when off, refused when on."""

from dataclasses import dataclass, field
from typing import Any

from verl.config.checks import refuse, refuse_all
from verl.config.node import Node


@dataclass(frozen=True)
class QATEngineConfig(Node):
    """Quantisation-aware training."""

    enable: bool = False
    """Refused when true."""
    mode: str = "w4a16"
    """Without effect."""
    group_size: int = 16
    """Without effect."""
    ignore_patterns: list[str] = field(default_factory=lambda: ["lm_head", "embed_tokens", "re:.*mlp.gate$"])
    """Without effect."""
    activation_observer: str = "static_minmax"
    """Without effect."""
    quantization_config_path: str | None = None
    """Without effect."""

    def __post_init__(self) -> None:
        refuse(self.enable, "enable", "quantisation-aware training", "train in bfloat16 (fsdp_config.dtype)")


QATConfig = QATEngineConfig


@dataclass(frozen=True)
class RouterReplayConfig(Node):
    """Replay of expert routing."""

    mode: str = "disabled"
    """disabled; R2 and R3 are refused."""
    record_file: str | None = None
    """Without effect."""
    replay_file: str | None = None
    """Without effect."""

    def __post_init__(self) -> None:
        on = self.mode if self.mode != "disabled" else None
        refuse(on, "mode", "router replay", "set mode=disabled; algorithm.rollout_correction narrows the mismatch")


EngineRouterReplayConfig = RouterReplayConfig


@dataclass(frozen=True)
class MtpConfig(Node):
    """Multi-token prediction heads."""

    enable: bool = False
    """Refused when true."""
    enable_train: bool = False
    """Without effect."""
    enable_rollout: bool = False
    """Without effect."""
    detach_encoder: bool = False
    """Without effect."""
    mtp_loss_scaling_factor: float = 0.1
    """Without effect."""
    speculative_algorithm: str = "EAGLE"
    """Without effect."""
    speculative_num_steps: int = 3
    """Without effect."""
    speculative_eagle_topk: int = 1
    """Without effect."""
    speculative_num_draft_tokens: int = 4
    """Without effect."""
    method: str = "mtp"
    """Without effect."""
    num_speculative_tokens: int = 1
    """Without effect."""

    def __post_init__(self) -> None:
        refuse(self.enable, "enable", "multi-token prediction", "set enable=false")


@dataclass(frozen=True)
class PrometheusConfig(Node):
    """A Prometheus scrape file for the rollout servers."""

    enable: bool = False
    """Refused when true."""
    port: int = 9090
    """Without effect."""
    file: str = "/tmp/ray/session_latest/metrics/prometheus/prometheus.yml"
    """Without effect."""
    served_model_name: str | None = None
    """Without effect."""

    def __post_init__(self) -> None:
        refuse(self.enable, "enable", "writing Prometheus' scrape file", "read metrics.jsonl or TensorBoard")


@dataclass(frozen=True)
class ServerConfig(Node):
    """SGLang's HTTP server; calls of the servers here have their deadlines in the code."""

    timeout: float = 60.0
    """Any other value is refused."""
    max_attempts: int = 3
    """Any other value is refused."""
    retry_delay: float = 2.0
    """Any other value is refused."""
    max_connections: int = 1000
    """Any other value is refused."""
    max_start_wait_time: float = 300.0
    """Any other value is refused."""

    def __post_init__(self) -> None:
        refuse_all(
            self,
            "SGLang's HTTP server",
            "remove the section: vLLM's servers need none",
            timeout=60.0,
            max_attempts=3,
            retry_delay=2.0,
            max_connections=1000,
            max_start_wait_time=300.0,
        )


@dataclass(frozen=True)
class DistillationLossConfig(Node):
    """The loss of on-policy distillation."""

    loss_mode: str = "k3"
    """Without effect."""
    topk: int | None = 32
    """Without effect."""
    use_task_rewards: bool = True
    """Without effect."""
    distillation_loss_coef: float = 1.0
    """Without effect."""
    loss_max_clamp: float | None = None
    """Without effect."""
    log_prob_min_clamp: float | None = None
    """Without effect."""
    use_policy_gradient: bool = False
    """Without effect."""
    policy_loss_mode: str = "vanilla"
    """Without effect."""
    clip_ratio: float = 0.2
    """Without effect."""
    clip_ratio_low: float = 0.2
    """Without effect."""
    clip_ratio_high: float = 0.2
    """Without effect."""


@dataclass(frozen=True)
class DistillationTeacherModelConfig(Node):
    """One teacher of on-policy distillation."""

    key: str | None = None
    """Without effect."""
    model_path: str | None = None
    """Without effect."""
    num_replicas: int | None = 0
    """Without effect."""
    inference: dict[str, Any] = field(default_factory=dict)
    """Without effect."""


@dataclass(frozen=True)
class DistillationConfig(Node):
    """On-policy distillation."""

    enabled: bool = False
    """Refused when true."""
    distillation_loss: DistillationLossConfig = field(default_factory=DistillationLossConfig)
    """Without effect."""
    n_gpus_per_node: int = 8
    """Without effect."""
    nnodes: int = 0
    """Without effect."""
    teacher_models: dict[str, Any] = field(default_factory=dict)
    """Without effect."""
    teacher_key: str = "data_source"
    """Without effect."""

    def __post_init__(self) -> None:
        refuse(self.enabled, "enabled", "on-policy distillation", "write it as a recipe on trainer/ppo/steps.py")


@dataclass(frozen=True)
class TransferQueueConfig(Node):
    """A second carrier of batches."""

    enable: bool = False
    """Refused when true."""
    backend: dict[str, Any] = field(default_factory=dict)
    """Without effect."""

    def __post_init__(self) -> None:
        refuse(self.enable, "enable", "TransferQueue", "set enable=false: batches already travel by reference")
