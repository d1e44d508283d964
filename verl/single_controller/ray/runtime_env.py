# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Runtime environments of Ray actors: merging."""

from collections.abc import Mapping
from typing import Any

from verl.errors import ConfigError


def merge_runtime_env(base: Mapping[str, Any] | None, user: Mapping[str, Any] | None) -> dict[str, Any]:
    """Two runtime environments in one: `user` wins key by key, and variable by variable."""
    base, user = dict(base or {}), dict(user or {})
    env_vars = {**(base.get("env_vars") or {}), **(user.get("env_vars") or {})}
    wrong = {name: value for name, value in env_vars.items() if not isinstance(value, str)}
    if wrong:
        raise ConfigError("environment variables are strings", where="runtime_env.env_vars", got=wrong)
    return {**base, **user} | ({"env_vars": env_vars} if env_vars else {})
