# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Interactions from the YAML file of `rollout.multi_turn.interaction_config_path`."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl.errors import ConfigError
from verl.interactions.base import BaseInteraction
from verl.utils.import_utils import load_class_from_fqn

__all__ = ["get_interaction_class", "initialize_interactions_from_config"]


def get_interaction_class(cls_name: str) -> type[BaseInteraction]:
    """The class behind `package.module.Class`."""
    return load_class_from_fqn(cls_name, "interaction class")


def initialize_interactions_from_config(interaction_config_file: str) -> dict[str, BaseInteraction]:
    """Interactions by name; a name that is not given is the class's, without "Interaction", in lower case."""
    file = Path(interaction_config_file).expanduser()
    if not file.is_file():
        raise ConfigError(
            "no such file", where="rollout.multi_turn.interaction_config_path", got=str(interaction_config_file)
        )
    interactions: dict[str, BaseInteraction] = {}
    tree: Any = OmegaConf.load(file)
    for entry in tree.get("interaction", None) or []:
        cls = get_interaction_class(entry.class_name)
        name = entry.get("name", None) or cls.__name__.removesuffix("Interaction").lower()
        if name in interactions:
            raise ConfigError("two interactions have one name", where=str(file), got=name)
        config: Any = OmegaConf.to_container(entry.get("config", OmegaConf.create({})), resolve=True)
        interactions[name] = cls(config | {"name": name})
    return interactions
