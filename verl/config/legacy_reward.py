# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old homes of the reward keys (`custom_reward_function`, `reward_model`, `sandbox_fusion`) → `reward`."""

import copy
import logging
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write

logger = logging.getLogger(__name__)

LEGACY_ROOTS = ("custom_reward_function", "reward_model", "sandbox_fusion")
_MOVED = {
    "reward_model.num_workers": "reward.num_workers",
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.reward_loop_source": "reward.reward_manager.source",
    "reward_model.reward_loop_module_path": "reward.reward_manager.module.path",
    "reward_model.reward_loop_class_name": "reward.reward_manager.module.name",
    "reward_model.model.path": "reward.reward_model.model_path",
}
_MOVED_SECTIONS = {
    "reward_model.reward_kwargs": "reward.reward_kwargs",
    "reward_model.rollout": "reward.reward_model.rollout",
    "reward_model": "reward.reward_model",
    "custom_reward_function": "reward.custom_reward_function",
    "sandbox_fusion": "reward.sandbox_fusion",
}
# Loading flags of the old reward model; the new one takes them from the model directory.
_DROPPED = ("reward_model.model.external_lib", "reward_model.model.trust_remote_code")


def migrate_legacy_reward_impl(config: DictConfig) -> DictConfig:
    """A copy in which every old key that is set (not null) stands at its new place; the old sections are gone."""
    config = copy.deepcopy(config)
    # The evaluation's file has the old home only: nothing of the user's has moved there.
    both_homes = "reward" in config
    with read_write(config), open_dict(config):
        old = {root: OmegaConf.to_container(config[root], resolve=True) for root in LEGACY_ROOTS if config.get(root)}
        for path, value in _set_leaves(old):
            if path in _DROPPED:
                logger.warning("%s is without effect", path)
                continue
            new = _new_path(path)
            _ensure_sections(config, new)
            OmegaConf.update(config, new, value, force_add=True)
            if both_homes:
                logger.warning("%s has moved; set %s=%s", path, new, value)
        for root in LEGACY_ROOTS:
            config.pop(root, None)
    return config


def _set_leaves(node: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict) and value:
            yield from _set_leaves(value, path)
        elif value is not None and value != {}:
            yield path, value


def _new_path(path: str) -> str:
    if path in _MOVED:
        return _MOVED[path]
    section = next(section for section in _MOVED_SECTIONS if path.startswith(section + "."))
    return _MOVED_SECTIONS[section] + path.removeprefix(section)


def _ensure_sections(config: DictConfig, path: str) -> None:
    # A section that the user set to null has no place for a key.
    parts = path.split(".")[:-1]
    for depth in range(1, len(parts) + 1):
        section = ".".join(parts[:depth])
        if OmegaConf.select(config, section, throw_on_missing=False) is None:
            OmegaConf.update(config, section, {}, force_add=True)
