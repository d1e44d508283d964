# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A model directory that is not there is said before anything starts; a name of the hub is left to who loads it."""

from pathlib import Path

import pytest

from verl.config.front_door import load
from verl.config.model_paths import refuse_missing_models
from verl.errors import ConfigError


@pytest.mark.parametrize("key", ["model.path", "model.tokenizer_path", "model.hf_config_path"])
@pytest.mark.parametrize("path", ["/nowhere/model", "~/nowhere/model", "./nowhere"])
def test_a_directory_that_is_not_there_is_named_with_its_key(key: str, path: str) -> None:
    config, _ = load(["actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B", f"++actor_rollout_ref.{key}='{path}'"])
    with pytest.raises(ConfigError, match=rf"actor_rollout_ref\.{key}: no such directory.*nowhere"):
        refuse_missing_models(config)


def test_names_of_the_hub_and_directories_that_are_there_pass(tmp_path: Path) -> None:
    for path in ("Qwen/Qwen2.5-0.5B", str(tmp_path)):
        config, _ = load([f"actor_rollout_ref.model.path={path}"])
        refuse_missing_models(config)
