# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which attention a model gets, and the form of packed input that this attention wants."""

from verl.errors import ConfigError

# Attention kernels that read sequence boundaries from restarting positions and need them in ONE row.
_VARLEN = frozenset({"flash_attention_2", "flash_attention_3"})
# Kernels for which transformers builds a block-diagonal mask from restarting positions, in any number of rows.
_MASKED = frozenset({"sdpa", "eager"})


def choose_attention(wanted: str | None, *, default: str, device_type: str) -> str:
    """The attention implementation: the wanted one, else the platform's `default`."""
    if wanted is None:
        return default
    if wanted not in _VARLEN | _MASKED:
        raise ConfigError(
            "attention implementation that cannot keep packed sequences apart",
            where="actor_rollout_ref.model.override_config.attn_implementation",
            got=wanted,
            expected=f"one of {', '.join(sorted(_VARLEN | _MASKED))}",
        )
    if wanted in _VARLEN and device_type == "cpu":
        raise ConfigError(
            f"{wanted} does not run on a CPU",
            where="actor_rollout_ref.model.override_config.attn_implementation",
            got=wanted,
            expected="sdpa or eager",
        )
    return wanted


def wants_single_row(attention: str) -> bool:
    """Whether packed tokens must lie in one row (varlen kernels) rather than in several short ones (masked)."""
    return attention in _VARLEN
