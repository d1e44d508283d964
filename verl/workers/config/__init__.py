# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old home of the typed configurations; new code imports verl.config."""

from verl.config.actor import ActorConfig, FSDPActorConfig, PolicyLossConfig
from verl.config.checkpoint import CheckpointConfig
from verl.config.critic import CriticConfig, FSDPCriticConfig
from verl.config.engine import EngineConfig, FSDPEngineConfig, TrainingWorkerConfig
from verl.config.left_out import (
    DistillationConfig,
    DistillationLossConfig,
    DistillationTeacherModelConfig,
    EngineRouterReplayConfig,
    MtpConfig,
    PrometheusConfig,
    QATConfig,
    QATEngineConfig,
    RouterReplayConfig,
    ServerConfig,
)
from verl.config.model import HFModelConfig
from verl.config.optimizer import FSDPOptimizerConfig, OptimizerConfig
from verl.config.reward import RewardConfig, RewardManagerConfig, RewardModelConfig, SandboxFusionConfig
from verl.config.rollout import (
    AgentLoopConfig,
    CheckpointEngineConfig,
    CustomAsyncServerConfig,
    MultiTurnConfig,
    RolloutConfig,
    SamplingConfig,
    SkipConfig,
    TraceConfig,
)

__all__ = [
    "ActorConfig",
    "AgentLoopConfig",
    "CheckpointConfig",
    "CheckpointEngineConfig",
    "CriticConfig",
    "CustomAsyncServerConfig",
    "DistillationConfig",
    "DistillationLossConfig",
    "DistillationTeacherModelConfig",
    "EngineConfig",
    "EngineRouterReplayConfig",
    "FSDPActorConfig",
    "FSDPCriticConfig",
    "FSDPEngineConfig",
    "FSDPOptimizerConfig",
    "HFModelConfig",
    "MtpConfig",
    "MultiTurnConfig",
    "OptimizerConfig",
    "PolicyLossConfig",
    "PrometheusConfig",
    "QATConfig",
    "QATEngineConfig",
    "RewardConfig",
    "RewardManagerConfig",
    "RewardModelConfig",
    "RolloutConfig",
    "RouterReplayConfig",
    "SamplingConfig",
    "SandboxFusionConfig",
    "ServerConfig",
    "SkipConfig",
    "TraceConfig",
    "TrainingWorkerConfig",
]
