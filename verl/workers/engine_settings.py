# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From the configuration of a role to what its engine takes: the one place that knows where a role keeps its keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl.config.actor import INFER_TOKENS as ACTOR_INFER_TOKENS
from verl.config.critic import INFER_TOKENS as CRITIC_INFER_TOKENS
from verl.errors import ConfigError
from verl.platform import current_platform

Section = Mapping[str, Any]


@dataclass(frozen=True)
class EngineSettings:
    """Everything one role on one rank needs.

    `trajectories_per_mini_batch` counts all ranks (None: the whole batch); `temperature` stands in for a missing one.
    """

    model_type: str
    strategy: str
    model_config: Section
    engine_config: Section
    optimizer_config: Section | None
    checkpoint_config: Section | None
    loss_fn: Any = None
    trajectories_per_mini_batch: int | None = None
    epochs: int = 1
    shuffle: bool = False
    shuffle_seed: int = 42
    needs_entropy: bool = False
    temperature: float = 1.0


def actor_settings(config: Any) -> EngineSettings:
    """`config` is the `actor_rollout_ref` section."""
    actor, rollout = config.actor, config.rollout
    engine = {
        **_role_engine(actor, "fsdp_config"),
        "use_dynamic_bsz": actor.use_dynamic_bsz,
        "max_token_len_per_gpu": actor.ppo_max_token_len_per_gpu,
        "micro_batch_size_per_gpu": actor.get("ppo_micro_batch_size_per_gpu"),
        "infer_use_dynamic_bsz": rollout.get("log_prob_use_dynamic_bsz", actor.use_dynamic_bsz),
        "infer_max_token_len_per_gpu": _stated(actor, "ppo_infer_max_token_len_per_gpu", ACTOR_INFER_TOKENS)
        or rollout.get("log_prob_max_token_len_per_gpu")
        or actor.ppo_max_token_len_per_gpu,
        "infer_micro_batch_size_per_gpu": actor.get("ppo_infer_micro_batch_size_per_gpu")
        or rollout.get("log_prob_micro_batch_size_per_gpu"),
        "use_remove_padding": actor.get("use_remove_padding", True),
    }
    return EngineSettings(
        model_type="language_model",
        strategy=actor.strategy,
        model_config=config.model,
        engine_config=engine,
        optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
        trajectories_per_mini_batch=actor.ppo_mini_batch_size * rollout.n,
        epochs=actor.ppo_epochs,
        shuffle=actor.shuffle,
        shuffle_seed=actor.data_loader_seed,
        needs_entropy=bool(actor.entropy_coeff) or bool(actor.calculate_entropy),
        temperature=rollout.temperature,
    )


def reference_settings(config: Any) -> EngineSettings:
    """`config` is the `actor_rollout_ref` section; the reference starts from `ref.model.path` or the actor's model."""
    ref = config.ref
    engine = {
        **_role_engine(ref, "fsdp_config"),
        "forward_only": True,
        "infer_use_dynamic_bsz": ref.log_prob_use_dynamic_bsz,
        "infer_max_token_len_per_gpu": ref.log_prob_max_token_len_per_gpu,
        "infer_micro_batch_size_per_gpu": ref.get("log_prob_micro_batch_size_per_gpu"),
        "use_remove_padding": config.model.get("use_remove_padding", True),
    }
    own_model = ref.get("model") or {}
    return EngineSettings(
        model_type="language_model",
        strategy=ref.strategy,
        # An adapter belongs to the policy; the reference is the model that it started from.
        model_config={**config.model, **own_model, "lora_rank": 0},
        engine_config=engine,
        optimizer_config=None,
        checkpoint_config=None,
        temperature=config.rollout.temperature,
    )


def critic_settings(config: Any) -> EngineSettings:
    """`config` is the `critic` section."""
    engine = {
        **_role_engine(config, "fsdp"),
        "use_dynamic_bsz": config.use_dynamic_bsz,
        "max_token_len_per_gpu": config.ppo_max_token_len_per_gpu,
        "micro_batch_size_per_gpu": config.get("ppo_micro_batch_size_per_gpu"),
        "infer_use_dynamic_bsz": config.use_dynamic_bsz,
        "infer_max_token_len_per_gpu": _stated(config, "ppo_infer_max_token_len_per_gpu", CRITIC_INFER_TOKENS)
        or config.forward_max_token_len_per_gpu,
        "infer_micro_batch_size_per_gpu": config.get("ppo_infer_micro_batch_size_per_gpu")
        or config.get("forward_micro_batch_size_per_gpu")
        or config.get("ppo_micro_batch_size_per_gpu"),
        "use_remove_padding": config.model.get("use_remove_padding", True),
    }
    return EngineSettings(
        model_type="value_model",
        strategy=config.strategy,
        model_config=config.model,
        engine_config=engine,
        optimizer_config=config.optim,
        checkpoint_config=config.checkpoint,
        trajectories_per_mini_batch=config.ppo_mini_batch_size * config.rollout_n,
        epochs=config.ppo_epochs,
        shuffle=config.shuffle,
        shuffle_seed=config.data_loader_seed,
    )


def training_worker_settings(config: Any) -> EngineSettings:
    """`config` is a `TrainingWorkerConfig`: each call of `train_batch` is one optimizer step over its whole batch."""
    engine, optimizer = config.engine_config, config.optimizer_config
    if engine is None:
        select = config.get("auto_select_engine_optim_fn")
        if select is None:
            raise ConfigError("must be set", where="engine_config", remedy="or give auto_select_engine_optim_fn")
        engine, optimizer = select(config.model_config, current_platform().device_type)
    return EngineSettings(
        model_type=config.model_type or config.model_config.get("model_type") or "language_model",
        strategy=engine.get("strategy") or "fsdp",
        model_config=config.model_config,
        engine_config={"infer_use_dynamic_bsz": engine.get("use_dynamic_bsz"), **engine},
        optimizer_config=optimizer,
        checkpoint_config=config.checkpoint_config,
    )


def _role_engine(role: Any, name: str) -> dict[str, Any]:
    """The engine section with the keys that a role states itself; both hold one value after the front door.

    A role without a section of that name has its engine's at `engine`.
    """
    engine: Section = role.get(name) or role.engine
    stated = ("ulysses_sequence_parallel_size", "entropy_from_logits_with_chunking", "entropy_checkpointing")
    return {**engine, **{key: role.get(key) for key in stated if role.get(key) is not None}}


def _stated(role: Any, key: str, default: int) -> int | None:
    """The value of a key, or null where it is its default and so nobody's."""
    value = role.get(key)
    return None if value == default else value
