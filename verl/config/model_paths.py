# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Model directories that are not there, said before a process starts; for jobs whose every process runs here."""

import os
from typing import Any

from verl.errors import ConfigError

MODEL_KEYS = (
    "actor_rollout_ref.model.path",
    "actor_rollout_ref.model.tokenizer_path",
    "actor_rollout_ref.model.hf_config_path",
    "actor_rollout_ref.ref.model.path",
)


def refuse_missing_models(config: Any) -> None:
    """Raise where a path that can only be meant as one of this machine names nothing.

    A relative path that does not exist may be the name of a model on the hub, which only loading it can tell.
    """
    for key in MODEL_KEYS:
        path = _at(config, key)
        if isinstance(path, str) and path.startswith(("/", "~", "./", "../")):
            local = os.path.expanduser(path)
            if not os.path.exists(local):
                raise ConfigError(
                    "no such directory",
                    where=key,
                    got=path,
                    expected="a directory with a model's files, or the name of a model on the hub",
                )


def _at(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = config.get(name) if config is not None else None
    return config
