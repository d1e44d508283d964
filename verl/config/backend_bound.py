# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Keys and choices that belong to backends left out of this package."""

import fnmatch

from verl.errors import UnsupportedError

# Choice → what to use; the key that makes the choice decides which table is asked.
TRAINING_BACKENDS = ("megatron", "veomni", "torchtitan", "mindspeed", "mindspeed_llm", "automodel", "fsdpturbo")
ROLLOUT_BACKENDS = ("sglang", "trtllm", "vllm_omni")
TRANSFER_BACKENDS = ("nixl", "mooncake", "kimi_ckpt_engine", "delta_sharded")

_PATTERNS = tuple(
    pattern for backend in TRAINING_BACKENDS for pattern in (f"*.{backend}", f"*.{backend}.*", f"*.engine.{backend}*")
)
# Fields of Megatron's optimizer that share the section with ours.
_PATTERNS += tuple(
    f"*.optim.{name}"
    for name in (
        "lr_warmup_init",
        "lr_decay_steps",
        "lr_decay_style",
        "min_lr",
        "weight_decay_incr_style",
        "lr_wsd_decay_style",
        "lr_wsd_decay_steps",
        "use_checkpoint_opt_param_scheduler",
    )
)
_PATTERNS += ("*.load_weight", "*.sglang_engine_mode", "*.moe_tensor_parallel_size", "*.layer_name_map")
_PATTERNS += ("critic.nccl_timeout",)


def foreign_backend(path: str) -> bool:
    """Whether a key path belongs to a backend that is left out; without that backend it has no effect."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in _PATTERNS)


def refuse_training_backend(strategy: str, where: str) -> None:
    """Raise for a training backend that is left out; names registered by a recipe pass."""
    if strategy in TRAINING_BACKENDS:
        raise UnsupportedError(
            f"the training backend {strategy} is not part of this package",
            where=where,
            got=strategy,
            expected="fsdp2",
            remedy="use actor_rollout_ref.actor.strategy=fsdp2 (model_engine=dp)",
        )


def refuse_rollout_backend(name: str, where: str) -> None:
    """Raise for a rollout engine that is left out; names registered by a recipe pass."""
    if name in ROLLOUT_BACKENDS:
        raise UnsupportedError(
            f"the rollout engine {name} is not part of this package",
            where=where,
            got=name,
            expected="vllm",
            remedy="use actor_rollout_ref.rollout.name=vllm",
        )


def refuse_transfer_backend(name: str | None, where: str) -> None:
    """Raise for a weight transfer that is left out; names registered by a recipe pass."""
    if name in TRANSFER_BACKENDS:
        raise UnsupportedError(
            f"the checkpoint engine {name} is not part of this package",
            where=where,
            got=name,
            expected="nccl, hccl, gloo, shm, disk or naive",
            remedy="use actor_rollout_ref.rollout.checkpoint_engine.backend=nccl (gloo on CPU)",
        )
