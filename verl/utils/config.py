# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old home of two configuration functions; new code uses verl.config.build_config and verl.config.validate."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

import verl.config
from verl.config.run import build_config
from verl.config.schema import Report, build
from verl.config.validate import validate
from verl.errors import ConfigError
from verl.utils.import_utils import load_class_from_fqn

__all__ = ["omega_conf_to_dataclass", "update_dict_with_config", "validate_config"]


def omega_conf_to_dataclass(config: DictConfig | Mapping[str, Any] | None, dataclass_type: type | None = None) -> Any:
    """A section as `dataclass_type`, or as the class that its `_target_` names; an empty section gives the defaults."""
    if not config and dataclass_type is not None:
        return dataclass_type()
    tree: Any = OmegaConf.to_container(config, resolve=True) if isinstance(config, DictConfig) else dict(config or {})
    target = tree.get("_target_")
    if dataclass_type is None:
        if not target:
            raise ConfigError("the section names no class", where="_target_", remedy="pass dataclass_type")
        name = target.rpartition(".")[2]
        known = target.startswith("verl.") and hasattr(verl.config, name)
        dataclass_type = getattr(verl.config, name) if known else load_class_from_fqn(target, "_target_")
    return build(dataclass_type, tree, report=Report("keep"))


def update_dict_with_config(dictionary: dict[str, Any], config: DictConfig) -> None:
    """Overwrite the keys of `dictionary` that `config` has too."""
    for key in dictionary:
        if key in config:
            dictionary[key] = config[key]


def validate_config(config: DictConfig, use_reference_policy: bool, use_critic: bool) -> None:
    """Build the typed configuration and check it as a whole; the two flags follow from it and are not asked."""
    del use_reference_policy, use_critic
    validate(build_config(config, unknown="keep"))
