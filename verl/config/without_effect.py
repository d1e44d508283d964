# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Keys that are accepted and change nothing: one warning where somebody set one."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from fnmatch import fnmatchcase
from typing import Any

logger = logging.getLogger(__name__)

# Key pattern → why, or what decides instead.
WITHOUT_EFFECT = {
    "actor_rollout_ref.actor.sum_pi_squared_checkpointing": "no gradient flows through it",
    "actor_rollout_ref.actor.use_rollout_log_probs": "algorithm.rollout_correction.bypass_mode decides",
    "actor_rollout_ref.*.use_torch_compile": "nothing is compiled",
    "critic.fsdp.use_torch_compile": "nothing is compiled",
    "*.use_fused_kernels": "log-probs are computed in chunks anyway",
    "*.fused_kernel_options": "log-probs are computed in chunks anyway",
    "*.use_orig_params": "FSDP1's",
    "*.layered_summon": "FSDP1's",
    "*.mbridge_config": "Megatron's",
    "*.over_sample_rate": "SGLang's",
    "*.multi_stage_wake_up": "SGLang's",
    "*.multi_turn.use_inference_chat_template": "tokens go in and come out, no template is applied twice",
    "*.multi_turn.tokenization_sanity_check_mode": "tokens go in and come out, no template is applied twice",
    "*.multi_turn.num_repeat_rollouts": "set actor_rollout_ref.rollout.n",
    "*.rollout.trace.token2text": "trainer.rollout_data_dir holds the texts",
    "*.rollout.trace.max_samples_per_step_per_worker": "every trajectory has its spans",
    "*.quantization_config_file": "the rollout engine is not quantized",
    "data.tokenizer": "set actor_rollout_ref.model.tokenizer_path",
    "data.return_*": "the messages are kept, and media are processed where they are used",
    "trainer.ray_wait_register_center_timeout": "there is no register centre",
    "trainer.device": "the platform is detected; VERL_PLATFORM overrides it",
    "trainer.esi_redundant_time": "SIGTERM saves and ends",
    "trainer.max_critic_ckpt_to_keep": "the critic lies in the same checkpoint as the actor",
    "ray_kwargs.timeline_json_file": "default_local_dir/trace holds the spans",
}
# Upstream's files set it, so ours do.
SET_BY_OUR_FILES = ("actor_rollout_ref.actor.use_rollout_log_probs",)

# Sections of features that are left out: switching one on is refused, the rest of its keys is not read.
LEFT_OUT_SECTIONS = (
    "distillation",
    "transfer_queue",
    "global_profiler",
    "*.profiler",
    "*.qat",
    "*.mtp",
    "*.router_replay",
    "*.prometheus",
    "reward.reward_model",
    "data.datagen",
    "algorithm.filter_groups",
)


def reason(path: str) -> str | None:
    """Why a key has no effect, or null for a key that has one."""
    for pattern, why in WITHOUT_EFFECT.items():
        if fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*"):
            return why
    for section in LEFT_OUT_SECTIONS:
        if fnmatchcase(path, section) or fnmatchcase(path, f"{section}.*"):
            return "the feature is left out, and off"
    return None


def warn_without_effect(tree: Mapping[str, Any], defaults: Any) -> None:
    """One warning that lists the keys that somebody set and nobody reads."""
    found = []
    for path, value in leaves(tree):
        why = reason(path)
        if why is not None and value not in (default_of(defaults, path), None, {}) and not _nobodys(path):
            found.append(f"{path} ({why})")
    if found:
        logger.warning("without effect: %s", "; ".join(found))


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every leaf but `_target_`; an empty section is a leaf."""
    for key, value in tree.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        elif key != "_target_":
            yield path, value


MISSING = object()


def default_of(defaults: Any, path: str) -> Any:
    """The code's default of a key path, or a mark that there is none."""
    node: Any = defaults
    for part in path.split("."):
        if is_dataclass(node) and part in node.__dataclass_fields__:
            node = getattr(node, part)
        elif isinstance(node, Mapping) and part in node:
            node = node[part]
        else:
            return MISSING
    return list(node) if isinstance(node, tuple) else node


def _nobodys(path: str) -> bool:
    # Left-out sections are filled by references and by options of their tools; only their switches are anybody's.
    return path in SET_BY_OUR_FILES or any(fnmatchcase(path, f"{section}.*") for section in LEFT_OUT_SECTIONS)
