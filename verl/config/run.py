# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The whole configuration of a run, and the one way from YAML to it."""

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl.base_config import BaseConfig
from verl.config.actor import FSDPActorConfig, RefConfig
from verl.config.algorithm import AlgoConfig
from verl.config.aliases import apply_aliases, apply_seed
from verl.config.async_training import AsyncTrainingConfig, RolloutPoolConfig
from verl.config.backend_bound import refuse_rollout_backend, refuse_training_backend, refuse_transfer_backend
from verl.config.checks import at_least
from verl.config.critic import FSDPCriticConfig
from verl.config.data import DataConfig
from verl.config.engine import FSDPEngineConfig
from verl.config.left_out import DistillationConfig, TransferQueueConfig
from verl.config.legacy_reward import LEGACY_ROOTS, migrate_legacy_reward_impl
from verl.config.model import HFModelConfig
from verl.config.node import Node
from verl.config.optimizer import FSDPOptimizerConfig
from verl.config.profiler import ProfilerConfig
from verl.config.reward import RewardConfig
from verl.config.rollout import RolloutConfig, SamplingConfig
from verl.config.schema import Report, build
from verl.config.trainer import RayKwargs, TrainerConfig
from verl.config.without_effect import warn_without_effect
from verl.errors import ConfigError, UnsupportedError

logger = logging.getLogger(__name__)

# rollout.n as the YAML has it: at this value nobody is taken to have set it.
UNSET_POOL_N = 4

T = TypeVar("T", bound=Node)


# A run starts from the YAML, whose values for some keys are others than those of the sections by themselves.


def yaml_engine(**stated: Any) -> FSDPEngineConfig:
    return FSDPEngineConfig(wrap_policy={"min_num_params": 0}, **stated)


def yaml_optimizer() -> FSDPOptimizerConfig:
    return FSDPOptimizerConfig(min_lr_ratio=0.0)


def yaml_model() -> HFModelConfig:
    return HFModelConfig(fused_kernel_options={"impl_backend": "torch"})


def _actor() -> FSDPActorConfig:
    return FSDPActorConfig(
        data_loader_seed=42, use_remove_padding=True, optim=yaml_optimizer(), fsdp_config=yaml_engine()
    )


def _ref() -> RefConfig:
    return RefConfig(fsdp_config=yaml_engine(forward_only=True))


def _rollout() -> RolloutConfig:
    greedy = SamplingConfig(temperature=0, do_sample=False)
    return RolloutConfig(enforce_eager=False, skip_tokenizer_init=True, val_kwargs=greedy, engine_kwargs={"vllm": {}})


def _critic() -> FSDPCriticConfig:
    return FSDPCriticConfig(
        ppo_mini_batch_size=256,
        data_loader_seed=42,
        shuffle=False,
        forward_micro_batch_size=None,
        forward_micro_batch_size_per_gpu=None,
        optim=yaml_optimizer(),
        fsdp=yaml_engine(),
        model=yaml_model(),
    )


@dataclass(frozen=True)
class ActorRolloutRefConfig(Node):
    """The policy in its three roles."""

    actor: FSDPActorConfig = field(default_factory=_actor)
    """It trains."""
    ref: RefConfig = field(default_factory=_ref)
    """It anchors the KL."""
    rollout: RolloutConfig = field(default_factory=_rollout)
    """It generates."""
    model: HFModelConfig = field(default_factory=yaml_model)
    """The model of all three."""
    hybrid_engine: bool = True
    """Trainer and rollout share devices; false in the fully asynchronous trainer."""
    nccl_timeout: int = 600
    """Seconds that a collective, and with it a call to a worker group, may take."""

    def __post_init__(self) -> None:
        at_least(self, 1, "nccl_timeout")
        if self.actor.model_config == BaseConfig():
            object.__setattr__(self.actor, "model_config", self.model)


@dataclass(frozen=True)
class RunConfig(Node):
    """Everything a PPO-like run is told; sections of trainers that are not running are null."""

    model_engine: str = "dp"
    """dp: FSDP2."""
    actor_rollout_ref: ActorRolloutRefConfig = field(default_factory=ActorRolloutRefConfig)
    """The policy."""
    critic: FSDPCriticConfig = field(default_factory=_critic)
    """The value model."""
    data: DataConfig = field(default_factory=DataConfig)
    """Prompts."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Rewards."""
    algorithm: AlgoConfig = field(default_factory=AlgoConfig)
    """Advantages, KL, rollout correction."""
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    """The loop."""
    async_training: AsyncTrainingConfig | None = None
    """The fully asynchronous trainer; null elsewhere."""
    rollout: RolloutPoolConfig | None = None
    """The pool of the rollout servers in the disaggregated trainers; null elsewhere."""
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    """Left out."""
    transfer_queue: TransferQueueConfig = field(default_factory=TransferQueueConfig)
    """Left out."""
    global_profiler: ProfilerConfig = field(default_factory=ProfilerConfig)
    """The profiler of the whole job."""
    ray_kwargs: RayKwargs = field(default_factory=RayKwargs)
    """Ray."""
    raw: dict[str, Any] = field(default_factory=dict)
    """The resolved plain tree, for extensions that want a mapping."""


def build_config(config: DictConfig | Mapping[str, Any], unknown: Literal["error", "keep"] = "error") -> RunConfig:
    """The typed configuration of a composed one, which is left untouched.

    Parameters
    ----------
    unknown : what becomes of keys that no field holds: "error" names the nearest known key,
        "keep" leaves them readable beside the fields (recipes add keys of their own).

    Raises
    ------
    ConfigError, UnsupportedError
        with the full key path.
    """
    tree = resolve(config)
    _refuse_left_out_choices(tree)
    _settle_rollout_pool(tree)
    warn_without_effect(tree, RunConfig())
    apply_aliases(tree)
    apply_seed(tree)
    return build_section(RunConfig, tree, unknown)


def build_section(cls: type[T], tree: dict[str, Any], unknown: Literal["error", "keep"] = "error") -> T:
    """A typed root section; its `raw` holds the tree it was built from."""
    report = Report(unknown)
    config = build(cls, {**tree, "raw": copy.deepcopy(tree)}, report=report)
    if report.kept:
        logger.warning("keys that verl does not read, left for extensions: %s", ", ".join(report.kept))
    return config


def resolve(config: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    """A plain copy with interpolations worked out and old reward keys moved."""
    made = config if isinstance(config, DictConfig) else OmegaConf.create(dict(config))
    if any(root in made for root in LEGACY_ROOTS):
        made = migrate_legacy_reward_impl(made)
    try:
        tree: Any = OmegaConf.to_container(made, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as error:
        raise unresolved(error) from error
    tree.pop("hydra", None)
    return tree


def unresolved(error: OmegaConfBaseException) -> ConfigError:
    """Our form of a failed reference."""
    what = str(error).partition("\n")[0]
    return ConfigError(f"a reference to another key cannot be resolved ({what})", where=error.full_key)


def _refuse_left_out_choices(tree: dict[str, Any]) -> None:
    if tree.get("model_engine", "dp") != "dp":
        refuse_training_backend(tree["model_engine"], "model_engine")
        raise UnsupportedError("unknown model engine", where="model_engine", got=tree["model_engine"], expected="dp")
    policy = tree.get("actor_rollout_ref") or {}
    refuse_training_backend((policy.get("actor") or {}).get("strategy", ""), "actor_rollout_ref.actor.strategy")
    rollout = policy.get("rollout") or {}
    refuse_rollout_backend(rollout.get("name", ""), "actor_rollout_ref.rollout.name")
    transfer = rollout.get("checkpoint_engine") or {}
    if not transfer.get("custom_backend_module"):
        refuse_transfer_backend(transfer.get("backend"), "actor_rollout_ref.rollout.checkpoint_engine.backend")


def _settle_rollout_pool(tree: dict[str, Any]) -> None:
    """The root pool sizes the policy's rollout, and has its number of trajectories per prompt from there."""
    pool, rollout = tree.get("rollout"), (tree.get("actor_rollout_ref") or {}).get("rollout")
    if not isinstance(pool, dict) or not isinstance(rollout, dict):
        return
    rollout["nnodes"] = pool.get("nnodes", 1)
    rollout["n_gpus_per_node"] = pool.get("n_gpus_per_node", 8)
    group = rollout.get("n", 1)
    if pool.get("n") not in (None, UNSET_POOL_N, group):
        raise pool_n_error(pool["n"], group)
    pool["n"] = group
    # The run has one number of epochs; a second one that nobody reads would end the run early without a word.
    epochs, pool_epochs = (tree.get("trainer") or {}).get("total_epochs"), pool.pop("total_epochs", None)
    if pool_epochs not in (None, epochs):
        raise ConfigError(
            "the number of epochs is given twice and disagrees",
            where="rollout.total_epochs",
            got=pool_epochs,
            expected=f"{epochs} as in trainer.total_epochs",
            remedy="set only trainer.total_epochs",
        )


def pool_n_error(pool_n: Any, group: Any) -> ConfigError:
    """The error for a `rollout.n` that disagrees with the number that counts."""
    return ConfigError(
        "the number of trajectories per prompt is given twice and disagrees",
        where="rollout.n",
        got=pool_n,
        expected=f"{group} as in actor_rollout_ref.rollout.n",
        remedy="set only actor_rollout_ref.rollout.n",
    )
