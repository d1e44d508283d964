# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Batch arithmetic of one role: what does not divide is refused before anything starts."""

from typing import Any

from verl.errors import ConfigError


def data_parallel_ranks(devices: int, sequence: int, where: str = "ulysses_sequence_parallel_size") -> int:
    """Ranks that see different trajectories, where `sequence` ranks share one."""
    if devices % sequence:
        raise ConfigError(
            "the trainer's ranks do not divide by the sequence-parallel size",
            where=where,
            got=sequence,
            expected=f"a divisor of {devices}",
        )
    return devices // sequence


def check_whole_mini_batches(batch: int, mini: int, where: str = "ppo_mini_batch_size") -> None:
    """A training batch of `batch` prompts holds whole mini-batches of `mini`."""
    if batch % mini:
        raise ConfigError(
            "a training batch must hold whole mini-batches",
            where=where,
            got=mini,
            expected=f"a divisor of data.train_batch_size={batch}",
        )


def check_mini_batch(mini: int, group: int, ranks: int, where: str = "ppo_mini_batch_size") -> None:
    """A mini-batch of `mini` prompts with `group` trajectories each spreads evenly over the ranks."""
    if mini * group % ranks:
        raise ConfigError(
            f"a mini-batch of {mini} prompts × {group} trajectories = {mini * group} "
            f"does not divide over {ranks} data-parallel ranks",
            where=where,
            got=mini,
            expected=f"a number whose {group}-fold divides by {ranks}",
        )


def check_micro_batch(dynamic: bool, size: int | None, per_rank: int | None, where: str) -> None:
    """Without `dynamic` batching there is a size, and a rank's share of a mini-batch holds whole micro-batches."""
    if dynamic:
        return
    if size is None:
        section, dot, name = where.rpartition(".")
        switch = "log_prob_use_dynamic_bsz" if name.startswith("log_prob") else "use_dynamic_bsz"
        raise ConfigError(
            "must be set", where=where, remedy=f"set it, or {section}{dot}{switch}=true to go by token count"
        )
    if per_rank is not None and per_rank % size:
        raise ConfigError(
            f"a rank's share of a mini-batch, {per_rank} trajectories, must hold whole micro-batches",
            where=where,
            got=size,
            expected=f"a divisor of {per_rank}",
        )


def check_packed(sequence: int, packed: bool, where: str) -> None:
    """Ranks that share a sequence share a packed one."""
    if sequence > 1 and not packed:
        raise ConfigError("sequence parallelism works on packed trajectories", where=where, got=False, expected="true")


def check_role(role: Any, n_gpus: int, train_batch_size: int, packed: bool) -> None:
    """All of it for an actor or a critic by itself; `train_batch_size` 0: prompts stream one by one."""
    sequence = role.get("ulysses_sequence_parallel_size", 1)
    ranks = data_parallel_ranks(n_gpus, sequence)
    check_whole_mini_batches(train_batch_size, role.ppo_mini_batch_size)
    check_mini_batch(role.ppo_mini_batch_size, role.rollout_n, ranks)
    per_rank = role.ppo_mini_batch_size * role.rollout_n // ranks
    size = role.ppo_micro_batch_size_per_gpu
    check_micro_batch(role.use_dynamic_bsz, size, per_rank, "ppo_micro_batch_size_per_gpu")
    check_packed(sequence, packed, "model.use_remove_padding")
