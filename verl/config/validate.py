# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Cross-field arithmetic in one place: what cannot work is refused before anything starts."""

import logging
from pathlib import Path

from verl.config.actor import FSDPActorConfig
from verl.config.async_training import AsyncTrainingConfig, required_samples
from verl.config.backend_bound import refuse_training_backend
from verl.config.batches import (
    check_micro_batch,
    check_mini_batch,
    check_packed,
    check_whole_mini_batches,
    data_parallel_ranks,
)
from verl.config.model import HFModelConfig
from verl.config.roles import need_critic, need_reference_policy
from verl.config.rollout import RolloutConfig
from verl.config.run import RunConfig
from verl.errors import ConfigError, UnsupportedError

logger = logging.getLogger(__name__)

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
TOKEN_BASELINES = ("optimal_token_baseline", "tir_optimal_token_baseline")


def validate(config: RunConfig) -> None:
    """Check one run's configuration as a whole.

    Raises
    ------
    ConfigError, UnsupportedError
        naming the keys that disagree and the one to change.
    """
    _check_choices(config)
    if config.async_training is not None:
        _check_fully_async(config, config.async_training)
    else:
        _check_batches(config)
    _check_mini_batch(config)
    _check_micro_batches(config)
    _check_rollout(config.actor_rollout_ref.rollout)
    _check_algorithm(config)
    if config.rollout is not None:
        _check_two_pools(config.actor_rollout_ref.rollout)


def num_replicas(rollout: RolloutConfig, where: str = ROLLOUT) -> int:
    """Servers that a rollout pool of its own holds: devices / (TP × DP × PP), at least one."""
    devices = rollout.nnodes * rollout.n_gpus_per_node
    if devices < rollout.replica_world_size or devices % rollout.replica_world_size:
        raise ConfigError(
            f"a pool of {devices} devices cannot hold replicas of {rollout.replica_world_size} devices "
            f"(TP {rollout.tensor_model_parallel_size} × DP {rollout.data_parallel_size} "
            f"× PP {rollout.pipeline_model_parallel_size})",
            where=f"{where}.tensor_model_parallel_size",
            got=rollout.tensor_model_parallel_size,
            expected=f"sizes whose product divides {devices}",
            remedy="change rollout.n_gpus_per_node or the parallel sizes",
        )
    return devices // rollout.replica_world_size


def data_parallel_size(config: RunConfig) -> int:
    """Ranks of the trainer that see different trajectories."""
    sequence = config.actor_rollout_ref.actor.ulysses_sequence_parallel_size
    return data_parallel_ranks(config.trainer.num_devices, sequence, f"{ACTOR}.ulysses_sequence_parallel_size")


def _check_choices(config: RunConfig) -> None:
    rollout = config.actor_rollout_ref.rollout
    if rollout.name is None:
        raise ConfigError("must be set", where=f"{ROLLOUT}.name", expected="vllm", remedy=f"add {ROLLOUT}.name=vllm")
    if need_critic(config):
        refuse_training_backend(config.critic.strategy, "critic.strategy")
        if config.critic.model is None:
            raise ConfigError("must be set", where="critic.model", remedy="set critic.model.path")
        _check_critic_model(config.critic.model.path, config.actor_rollout_ref.model.path)
    if config.algorithm.adv_estimator == "gae" and config.critic.enable is False:
        raise ConfigError(
            "gae needs values, and the critic is switched off",
            where="critic.enable",
            got=False,
            expected="null or true",
            remedy="or choose algorithm.adv_estimator=grpo",
        )


def _check_critic_model(path: str, actor_path: str) -> None:
    """Both have one default: where only the actor's was changed, the critic's was forgotten."""
    if path == HFModelConfig().path != actor_path and not Path(path).expanduser().exists():
        raise ConfigError(
            "a critic is trained and its model is not set",
            where="critic.model.path",
            got=path,
            expected=f"the model that the values start from, often {actor_path}",
            remedy="set critic.model.path",
        )


def _check_fully_async(config: RunConfig, training: AsyncTrainingConfig) -> None:
    policy = config.actor_rollout_ref
    for where, got, expected, why in (
        ("data.train_batch_size", config.data.train_batch_size, 0, "prompts stream one by one"),
        ("data.gen_batch_size", config.data.gen_batch_size, 1, "prompts stream one by one"),
        ("actor_rollout_ref.hybrid_engine", policy.hybrid_engine, False, "trainer and rollout have devices each"),
        (f"{ROLLOUT}.calculate_log_probs", policy.rollout.calculate_log_probs, True, "old log-probs come from there"),
    ):
        if got != expected:
            value = str(expected).lower()
            raise ConfigError(
                f"in fully asynchronous training {why}", where=where, got=got, remedy=f"set {where}={value}"
            )
    if policy.rollout.skip.enable:
        raise UnsupportedError(
            "rollouts from disk are for the synchronous trainers",
            where=f"{ROLLOUT}.skip.enable",
            got=True,
            remedy=f"set {ROLLOUT}.skip.enable=false, or use verl.trainer.main_ppo",
        )
    if training.use_trainer_do_validate:
        raise UnsupportedError(
            "validation on the trainer's devices is not part of this package",
            where="async_training.use_trainer_do_validate",
            got=True,
            expected="false: the rollout servers validate",
            remedy="set async_training.use_trainer_do_validate=false",
        )
    if training.device_share < 1:
        _check_shared_device(config, training.device_share)
    limit = config.rollout.total_rollout_steps if config.rollout else None
    version = required_samples(policy.actor.ppo_mini_batch_size, training.require_batches)
    version *= training.trigger_parameter_sync_step
    if limit is not None and limit < version:
        raise ConfigError(
            f"{limit} prompts are generated in the whole run, and one weight version takes {version}",
            where="rollout.total_rollout_steps",
            got=limit,
            expected=f"at least {version}",
        )


def _check_two_pools(rollout: RolloutConfig) -> None:
    num_replicas(rollout)
    if rollout.checkpoint_engine.backend == "naive":
        raise ConfigError(
            "naive hands weights over inside one process, and here are two",
            where=f"{ROLLOUT}.checkpoint_engine.backend",
            got="naive",
            expected="nccl, gloo, shm or disk",
        )


def _check_shared_device(config: RunConfig, share: float) -> None:
    ranks = (config.trainer.num_devices, config.rollout.num_devices if config.rollout else 0)
    if ranks != (1, 1):
        # Ray would put two ranks of the trainer on one device, whose collectives refuse that.
        raise ConfigError(
            "a device is shared by one rank of the trainer and one of the rollout",
            where="async_training.device_share",
            got=f"{share} with {ranks[0]} + {ranks[1]} ranks",
            expected="1.0 for more ranks",
            remedy="set trainer.n_gpus_per_node=1 and rollout.n_gpus_per_node=1, or leave device_share alone",
        )
    backend = config.actor_rollout_ref.rollout.checkpoint_engine.backend
    if backend in ("nccl", "gloo", "hccl"):
        raise ConfigError(
            "a collective refuses two ranks on one device",
            where=f"{ROLLOUT}.checkpoint_engine.backend",
            got=f"{backend} with async_training.device_share={share}",
            expected="shm or disk",
            remedy=f"set {ROLLOUT}.checkpoint_engine.backend=shm",
        )


def _check_batches(config: RunConfig) -> None:
    batch, mini = config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size
    if batch < 1:
        raise ConfigError(
            "must be set", where="data.train_batch_size", got=batch, expected="at least 1 outside fully async training"
        )
    check_whole_mini_batches(batch, mini, f"{ACTOR}.ppo_mini_batch_size")


def _check_mini_batch(config: RunConfig) -> None:
    actor, group = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout.n
    check_mini_batch(actor.ppo_mini_batch_size, group, data_parallel_size(config), f"{ACTOR}.ppo_mini_batch_size")
    where = "actor_rollout_ref.model.use_remove_padding"
    check_packed(actor.ulysses_sequence_parallel_size, actor.use_remove_padding, where)


def _check_micro_batches(config: RunConfig) -> None:
    policy = config.actor_rollout_ref
    actor, rollout, ref = policy.actor, policy.rollout, policy.ref
    per_rank = actor.ppo_mini_batch_size * rollout.n // data_parallel_size(config)
    size = actor.ppo_micro_batch_size_per_gpu
    check_micro_batch(actor.use_dynamic_bsz, size, per_rank, f"{ACTOR}.ppo_micro_batch_size_per_gpu")
    if not config.algorithm.rollout_correction or not config.algorithm.rollout_correction.bypass_mode:
        size = rollout.log_prob_micro_batch_size_per_gpu
        where = f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"
        check_micro_batch(rollout.log_prob_use_dynamic_bsz, size, None, where)
    if need_reference_policy(config):
        size = ref.log_prob_micro_batch_size_per_gpu
        where = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"
        check_micro_batch(ref.log_prob_use_dynamic_bsz, size, None, where)
    if need_critic(config):
        critic = config.critic
        size = critic.ppo_micro_batch_size_per_gpu
        check_micro_batch(critic.use_dynamic_bsz, size, None, "critic.ppo_micro_batch_size_per_gpu")
    _warn_about_token_limit(actor, rollout)


def _warn_about_token_limit(actor: FSDPActorConfig, rollout: RolloutConfig) -> None:
    longest = rollout.prompt_length + rollout.response_length
    room = actor.ppo_max_token_len_per_gpu * actor.ulysses_sequence_parallel_size
    if actor.use_dynamic_bsz and room < longest:
        logger.warning(
            "%s.ppo_max_token_len_per_gpu × sequence parallel = %d tokens; a trajectory may have %d and then fills "
            "a micro-batch beyond the limit",
            ACTOR,
            room,
            longest,
        )


def _check_rollout(rollout: RolloutConfig) -> None:
    longest = rollout.prompt_length + rollout.response_length
    if rollout.context_length < longest:
        raise ConfigError(
            f"the engine must hold prompt and response, {longest} tokens",
            where=f"{ROLLOUT}.max_model_len",
            got=rollout.max_model_len,
            expected=f"null or at least {longest}",
        )
    if not rollout.enable_chunked_prefill and rollout.max_num_batched_tokens < rollout.context_length:
        raise ConfigError(
            "without chunked prefill a whole sequence must fit one engine step",
            where=f"{ROLLOUT}.max_num_batched_tokens",
            got=rollout.max_num_batched_tokens,
            expected=f"at least {rollout.context_length}",
            remedy=f"or set {ROLLOUT}.enable_chunked_prefill=true",
        )
    if rollout.val_kwargs.do_sample and rollout.val_kwargs.temperature == 0:
        raise ConfigError(
            "sampling at temperature 0 is greedy",
            where=f"{ROLLOUT}.val_kwargs.temperature",
            got=0,
            expected="above 0 with val_kwargs.do_sample=true",
        )


def _check_algorithm(config: RunConfig) -> None:
    algorithm, rollout = config.algorithm, config.actor_rollout_ref.rollout
    correction = algorithm.rollout_correction
    if correction is not None:
        uses_log_probs = correction.bypass_mode or correction.rollout_is or correction.rollout_rs
        if uses_log_probs and not rollout.calculate_log_probs:
            raise ConfigError(
                "rollout correction needs the rollout's log-probs",
                where=f"{ROLLOUT}.calculate_log_probs",
                got=False,
                expected="true",
            )
        if correction.rollout_rs and correction.rollout_rs_threshold is None:
            raise ConfigError(
                f"rejection by {correction.rollout_rs} needs a bound",
                where="algorithm.rollout_correction.rollout_rs_threshold",
                expected='a number, or "low_high"',
            )
    _check_estimator(config)
    if algorithm.adv_estimator.startswith("grpo") and rollout.n == 1:
        logger.warning("%s.n=1: a group of one has no advantage under %s", ROLLOUT, algorithm.adv_estimator)
    if algorithm.use_kl_in_reward and config.actor_rollout_ref.actor.use_kl_loss:
        logger.warning("KL counts twice: algorithm.use_kl_in_reward and %s.use_kl_loss", ACTOR)


def _check_estimator(config: RunConfig) -> None:
    """Refuse estimators whose inputs no step of this trainer makes, as it is configured."""
    name = config.algorithm.adv_estimator
    where = "algorithm.adv_estimator"
    if name == "remax" and config.async_training is not None:
        raise UnsupportedError(
            "a greedy answer beside the samples is generated by the synchronous trainer only",
            where=where,
            got=name,
            remedy="use verl.trainer.main_ppo, or algorithm.adv_estimator=rloo",
        )
    if name == "gdpo" and not config.algorithm.gdpo_reward_keys:
        raise ConfigError(
            "gdpo needs the names of its rewards",
            where="algorithm.gdpo_reward_keys",
            got=config.algorithm.gdpo_reward_keys,
            expected="keys that compute_score returns",
            remedy="add +algorithm.gdpo_reward_keys=[…]",
        )
    if name in TOKEN_BASELINES:
        _check_token_baseline(config)


def _check_token_baseline(config: RunConfig) -> None:
    """The baselines read the distribution at each token, which only recomputing the old log-probs shows."""
    estimator, correction = config.algorithm.adv_estimator, config.algorithm.rollout_correction
    if not config.actor_rollout_ref.actor.calculate_sum_pi_squared:
        raise ConfigError(
            f"{estimator} needs the sum of squared probabilities",
            where=f"{ACTOR}.calculate_sum_pi_squared",
            got=False,
            remedy=f"set {ACTOR}.calculate_sum_pi_squared=true",
        )
    if correction is not None and correction.bypass_mode:
        raise ConfigError(
            f"{estimator} needs the old log-probs recomputed, and bypass mode takes the rollout's",
            where="algorithm.rollout_correction.bypass_mode",
            got=True,
            remedy="set algorithm.rollout_correction.bypass_mode=false",
        )
