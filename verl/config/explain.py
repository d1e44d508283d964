# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The batch arithmetic of a run, in sentences."""

from verl.config.async_training import max_concurrent_samples, max_required_samples, required_samples, total_train_steps
from verl.config.run import RunConfig
from verl.config.validate import data_parallel_size, num_replicas


def explain(config: RunConfig) -> list[str]:
    """What one step, one round and one weight version mean in this run; one sentence each."""
    lines = _optimizer_step(config)
    if config.async_training is not None and config.rollout is not None:
        return lines + _fully_async(config)
    mini, batch = config.actor_rollout_ref.actor.ppo_mini_batch_size, config.data.train_batch_size
    group = config.actor_rollout_ref.rollout.n
    lines.append(
        f"One training step: {batch} prompts × {group} = {batch * group} trajectories in {batch // mini} mini-batches, "
        f"{config.actor_rollout_ref.actor.ppo_epochs} pass(es)."
    )
    if config.rollout is not None:
        lines.append(_servers(config))
    return lines


def _optimizer_step(config: RunConfig) -> list[str]:
    actor, group = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout.n
    ranks = data_parallel_size(config)
    trajectories = actor.ppo_mini_batch_size * group
    if actor.use_dynamic_bsz:
        how = f"in micro-batches of at most {actor.ppo_max_token_len_per_gpu} tokens"
    else:
        how = f"in micro-batches of {actor.ppo_micro_batch_size_per_gpu} trajectories"
    return [
        f"One optimizer step: {actor.ppo_mini_batch_size} prompts × {group} = {trajectories} trajectories "
        f"over {ranks} data-parallel rank(s), {trajectories // ranks} each, {how}."
    ]


def _fully_async(config: RunConfig) -> list[str]:
    training, pool = config.async_training, config.rollout
    assert training is not None and pool is not None
    mini, sync = config.actor_rollout_ref.actor.ppo_mini_batch_size, training.trigger_parameter_sync_step
    required = required_samples(mini, training.require_batches)
    limit = max_required_samples(required, sync, training.staleness_threshold)
    servers = num_replicas(config.actor_rollout_ref.rollout)
    lines = [
        f"One round takes {training.require_batches} × {mini} = {required} prompt groups from the queue; "
        f"new weights go out every {sync} round(s), that is every {required * sync} groups.",
        f"Between two weight updates at most ⌊{required} × {sync} × (1 + {training.staleness_threshold})⌋ = {limit} "
        f"groups are started, {max_concurrent_samples(servers, limit)} at the same time.",
        _servers(config),
    ]
    if pool.total_rollout_steps is not None:
        versions = total_train_steps(pool.total_rollout_steps, required, sync)
        left = pool.total_rollout_steps // required % sync
        lines.append(
            f"At most {pool.total_rollout_steps} groups are generated in the whole run: {versions} weight versions"
            + (f", and one more at the end for the last {left} round(s)." if left else ".")
        )
    return lines


def _servers(config: RunConfig) -> str:
    rollout, pool = config.actor_rollout_ref.rollout, config.rollout
    assert pool is not None
    return (
        f"Rollout pool: {pool.num_devices} device(s) / (TP {rollout.tensor_model_parallel_size} × "
        f"DP {rollout.data_parallel_size} × PP {rollout.pipeline_model_parallel_size}) = "
        f"{num_replicas(rollout)} server(s); trainer pool: {config.trainer.num_devices} device(s)."
    )
