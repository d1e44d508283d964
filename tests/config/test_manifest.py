# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The manifest lets a run be understood and repeated."""

import json
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

import verl
from verl.config import build_config
from verl.config.manifest import git_state, write_manifest


def test_a_manifest_holds_configuration_versions_seeds_and_command_line(minimal: Any, tmp_path: Path) -> None:
    config = build_config(OmegaConf.merge(minimal, {"trainer": {"seed": 5}}))
    facts = json.loads(write_manifest(config, tmp_path / "run").read_text())
    assert facts["config"] == config.raw
    assert facts["packages"]["omegaconf"] and facts["verl"] == verl.__version__
    assert set(facts["seeds"].values()) == {5} and len(facts["seeds"]) == 7
    assert facts["argv"] and facts["host"] and facts["python"]
    assert OmegaConf.to_container(OmegaConf.load(tmp_path / "run" / "config.yaml")) == config.raw


def test_a_resumed_run_keeps_the_earlier_manifests(minimal: Any, tmp_path: Path) -> None:
    for _ in range(3):
        write_manifest(build_config(minimal), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"manifest.json", "manifest.1.json", "manifest.2.json", "config.yaml"}


def test_outside_a_checkout_there_is_no_git_state(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
