# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Glossary of the batch: each name that has a meaning, its shape, kind of dtype, and who writes it.

Letters: B trajectories, P prompt tokens (padded left), T response tokens (padded right), S = P + T.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass

import torch

from verl.errors import DataError


@dataclass(frozen=True)
class Field:
    """One tensor of the batch; `kind` is int, float or any (bool counts as int)."""

    shape: str
    kind: str
    writer: str
    meaning: str


TENSORS: dict[str, Field] = {
    "prompts": Field("BP", "int", "agent loop", "prompt token ids, padded left"),
    "responses": Field("BT", "int", "agent loop", "response token ids, padded right"),
    "input_ids": Field("BS", "int", "agent loop", "prompts and responses side by side"),
    "attention_mask": Field("BS", "int", "agent loop", "1 on real tokens"),
    "position_ids": Field("B…S", "int", "agent loop", "positions; [B, 4, S] for models with rotary sections"),
    "response_mask": Field("BT", "any", "agent loop", "1 on policy tokens, 0 on tool and padding tokens"),
    "rollout_log_probs": Field("BT", "float", "agent loop", "log-probs under the behaviour policy"),
    "token_versions": Field("BT", "int", "agent loop", "policy version that produced the token, -1 where none did"),
    "rm_scores": Field("BT", "float", "reward loop", "the trajectory's score on its last response token"),
    "old_log_probs": Field("BT", "float", "old_log_prob step", "log-probs under the proximal policy"),
    "entropys": Field("BT", "float", "old_log_prob step", "entropy of the proximal policy"),
    "ref_log_prob": Field("BT", "float", "ref_log_prob step", "log-probs under the reference policy"),
    "values": Field("BT", "float", "values step", "critic's estimate"),
    "token_level_scores": Field("BT", "float", "score_rewards step", "score before KL"),
    "token_level_rewards": Field("BT", "float", "advantages step", "reward after KL"),
    "rollout_is_weights": Field("BT", "float", "correct_rollout step", "importance weights"),
    "advantages": Field("BT", "float", "advantages step", "advantage of each policy token"),
    "returns": Field("BT", "float", "advantages step", "target of the critic"),
    "reward_baselines": Field("B", "float", "batch source", "ReMax: reward of the greedy answer"),
}

COLUMNS: dict[str, str] = {
    "uid": "group of the trajectory: rows of one prompt share it",
    "data_source": "where the prompt comes from; chooses the scorer",
    "reward_model": "style and ground_truth for the scorer",
    "extra_info": "free facts of the row",
    "raw_prompt": "chat messages before the template",
    "agent_name": "agent loop that ran the row",
    "tools_kwargs": "per-tool arguments of the row",
    "multi_modal_inputs": "processor output for images and video",
    "__num_turns__": "turns in the trajectory",
    "min_global_steps": "policy version at the first token",
    "max_global_steps": "policy version at the last token",
    "reward_error": "why the trajectory has no score, or None",
    "seed": "seed of the trajectory's sampling",
}

META_INFO: dict[str, str] = {
    "temperature": "sampling temperature, which the engine divides the logits by",
    "global_token_num": "real tokens of each row of the whole batch",
    "metrics": "name to value, or to the list of every part's values after a concat",
    "timing": "name to seconds; the longest of any part after a concat",
}


def check(tensors: Mapping[str, torch.Tensor], columns: Set[str]) -> None:
    """Raise a DataError for a known tensor of the wrong kind or whose shape contradicts another's."""
    misplaced = sorted(TENSORS.keys() & columns)
    if misplaced:
        raise DataError("these are tensors, not columns", got=misplaced, remedy="put them into `batch`")
    sizes: dict[str, tuple[int, str]] = {}
    for name, tensor in tensors.items():
        field = TENSORS.get(name)
        if field is None or tensor.is_nested:
            continue
        if field.kind != "any" and tensor.is_floating_point() != (field.kind == "float"):
            raise DataError("wrong kind of dtype", where=name, got=str(tensor.dtype), expected=field.kind)
        _check_shape(name, tensor, field.shape, sizes)
    if {"P", "T", "S"} <= sizes.keys() and sizes["P"][0] + sizes["T"][0] != sizes["S"][0]:
        raise DataError(
            "prompt and response lengths do not add up",
            got=", ".join(f"{letter} = {size} ({name})" for letter, (size, name) in sorted(sizes.items())),
        )


def _check_shape(name: str, tensor: torch.Tensor, letters: str, sizes: dict[str, tuple[int, str]]) -> None:
    dims = list(zip(letters, tensor.shape, strict=False))
    if "…" in letters:
        dims = [(letters[0], tensor.shape[0]), (letters[-1], tensor.shape[-1])]
    elif tensor.dim() != len(letters):
        raise DataError("wrong number of dimensions", where=name, got=tuple(tensor.shape), expected=f"[{letters}]")
    for letter, size in dims:
        known, other = sizes.setdefault(letter, (int(size), name))
        if known != size:
            raise DataError(f"{letter} differs from that of {other}", where=name, got=int(size), expected=known)
