# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Typed configuration; the YAML stays in verl/trainer/config. Light: no torch, Ray, transformers or Hydra."""

from verl.config.actor import ActorConfig, FSDPActorConfig, PolicyLossConfig, RefConfig
from verl.config.algorithm import AlgoConfig, FilterGroupsConfig, KLControlConfig
from verl.config.async_training import (
    AsyncTrainingConfig,
    RolloutPoolConfig,
    exact_floor,
    max_concurrent_samples,
    max_required_samples,
    required_samples,
    total_rollout_steps,
    total_train_steps,
)
from verl.config.checkpoint import CheckpointConfig
from verl.config.critic import CriticConfig, FSDPCriticConfig
from verl.config.data import CustomClassConfig, DataConfig, DatagenConfig, SamplerConfig
from verl.config.engine import EngineConfig, FSDPEngineConfig, TrainingWorkerConfig
from verl.config.explain import explain
from verl.config.left_out import (
    DistillationConfig,
    DistillationLossConfig,
    DistillationTeacherModelConfig,
    MtpConfig,
    PrometheusConfig,
    QATConfig,
    QATEngineConfig,
    RouterReplayConfig,
    ServerConfig,
    TransferQueueConfig,
)
from verl.config.legacy_reward import migrate_legacy_reward_impl
from verl.config.model import HFModelConfig
from verl.config.node import Node
from verl.config.optimizer import FSDPOptimizerConfig, OptimizerConfig
from verl.config.profiler import (
    NPUToolConfig,
    NsightToolConfig,
    PrecisionDebuggerToolConfig,
    ProfilerConfig,
    ToolConfigs,
    TorchMemoryToolConfig,
    TorchProfilerToolConfig,
)
from verl.config.reward import (
    ModuleConfig,
    RewardConfig,
    RewardFunctionConfig,
    RewardManagerConfig,
    RewardModelConfig,
    SandboxFusionConfig,
)
from verl.config.roles import need_critic, need_reference_policy, need_reward_model, need_teacher_policy
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
from verl.config.rollout_correction import RolloutCorrectionConfig
from verl.config.run import ActorRolloutRefConfig, RunConfig, build_config
from verl.config.sft import EvalRunConfig, SFTDataConfig, SFTRunConfig, build_eval_config, build_sft_config
from verl.config.trainer import RayKwargs, TrainerConfig
from verl.config.validate import num_replicas, validate

__all__ = [
    "ActorConfig",
    "ActorRolloutRefConfig",
    "AgentLoopConfig",
    "AlgoConfig",
    "AsyncTrainingConfig",
    "CheckpointConfig",
    "CheckpointEngineConfig",
    "CriticConfig",
    "CustomAsyncServerConfig",
    "CustomClassConfig",
    "DataConfig",
    "DatagenConfig",
    "DistillationConfig",
    "DistillationLossConfig",
    "DistillationTeacherModelConfig",
    "EngineConfig",
    "EvalRunConfig",
    "FSDPActorConfig",
    "FSDPCriticConfig",
    "FSDPEngineConfig",
    "FSDPOptimizerConfig",
    "FilterGroupsConfig",
    "HFModelConfig",
    "KLControlConfig",
    "ModuleConfig",
    "MtpConfig",
    "MultiTurnConfig",
    "NPUToolConfig",
    "Node",
    "NsightToolConfig",
    "OptimizerConfig",
    "PolicyLossConfig",
    "PrecisionDebuggerToolConfig",
    "ProfilerConfig",
    "PrometheusConfig",
    "QATConfig",
    "QATEngineConfig",
    "RayKwargs",
    "RefConfig",
    "RewardConfig",
    "RewardFunctionConfig",
    "RewardManagerConfig",
    "RewardModelConfig",
    "RolloutConfig",
    "RolloutCorrectionConfig",
    "RolloutPoolConfig",
    "RouterReplayConfig",
    "RunConfig",
    "SFTDataConfig",
    "SFTRunConfig",
    "SamplerConfig",
    "SamplingConfig",
    "SandboxFusionConfig",
    "ServerConfig",
    "SkipConfig",
    "ToolConfigs",
    "TorchMemoryToolConfig",
    "TorchProfilerToolConfig",
    "TraceConfig",
    "TrainerConfig",
    "TrainingWorkerConfig",
    "TransferQueueConfig",
    "build_config",
    "build_eval_config",
    "build_sft_config",
    "exact_floor",
    "explain",
    "max_concurrent_samples",
    "max_required_samples",
    "migrate_legacy_reward_impl",
    "need_critic",
    "need_reference_policy",
    "need_reward_model",
    "need_teacher_policy",
    "num_replicas",
    "required_samples",
    "total_rollout_steps",
    "total_train_steps",
    "validate",
]
