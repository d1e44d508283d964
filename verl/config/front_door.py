# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The one front door of every main: command line → composed YAML → typed configuration → run.

Nothing is written into the current directory; errors come as one readable message.
"""

import glob
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from verl.config.compose import CommandLine, as_yaml, compose_config, parse_command_line
from verl.config.explain import explain
from verl.config.legacy_reward import migrate_legacy_reward_impl
from verl.config.run import RunConfig, build_config, pool_n_error, unresolved
from verl.config.validate import validate
from verl.errors import ConfigError, VerlError
from verl.platform.facts import refuse_broken_torch
from verl.utils.logging_utils import set_up_logging

logger = logging.getLogger(__name__)

T = TypeVar("T")

FULLY_ASYNC = "verl.experimental.fully_async_policy.config"
DEFAULT_LOCAL_DIR = "checkpoints/${trainer.project_name}/${trainer.experiment_name}"

# Files that other processes open, whose directory may be another: a path that exists from here is made absolute.
PATH_KEYS = (
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
    "actor_rollout_ref.rollout.agent.custom_async_server.path",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path",
    "actor_rollout_ref.rollout.multi_turn.interaction_config_path",
    "data.custom_cls.path",
    "data.sampler.class_path",
    "reward.custom_reward_function.path",
    "reward.reward_manager.module.path",
    "trainer.resume_from_path",
    "actor_rollout_ref.model.path",
    "actor_rollout_ref.model.tokenizer_path",
    "critic.model.path",
    "data.tool_config_path",
    "data.train_files",
    "data.val_files",
)


def run_main(
    run: Callable[[T, DictConfig], int | None],
    config_module: str = FULLY_ASYNC,
    config_name: str = "fully_async_ppo_trainer",
    argv: Sequence[str] | None = None,
    *,
    build: Callable[..., T] = build_config,  # type: ignore[assignment]
    check: Callable[[T], None] | None = None,
) -> int:
    """Parse `argv`, build the configuration, check it, call `run(config, composed)`; returns the exit code.

    `build` makes the typed configuration (`build_sft_config` …); `check` looks at it as a whole (default: `check_run`).

    0: done · 1: the run failed · 2: the configuration is wrong.
    """
    set_up_logging("main")
    try:
        line = parse_command_line(sys.argv[1:] if argv is None else argv, config_module, config_name)
        if line.help:
            sys.stdout.write(help_text(line))
            return 0
        composed = compose_config(line)
        if line.show:
            sys.stdout.write(as_yaml(composed, line.resolve))
            return 0
        refuse_broken_torch()
        composed = settle(composed, line)
        config = build(composed, unknown="keep")
        (check or check_run)(config)
    except VerlError as error:
        return report(error, 2)
    try:
        return run(config, composed) or 0
    except VerlError as error:
        return report(error, 2 if isinstance(error, ConfigError) else 1)


def load(
    overrides: Sequence[str] = (), config_module: str = FULLY_ASYNC, config_name: str = "fully_async_ppo_trainer"
) -> tuple[RunConfig, DictConfig]:
    """The same road without a command line: for tests, notebooks and tools. Raises instead of printing."""
    line = parse_command_line(overrides, config_module, config_name)
    composed = settle(compose_config(line), line)
    return build_config(composed, unknown="keep"), composed


def settle(composed: DictConfig, line: CommandLine) -> DictConfig:
    """A copy with old reward keys moved and paths made absolute."""
    try:
        return _settled(migrate_legacy_reward_impl(composed), line)
    except OmegaConfBaseException as error:
        raise unresolved(error) from error


def _settled(config: DictConfig, line: CommandLine) -> DictConfig:
    _check_explicit_pool_n(config, line)
    with open_dict(config):
        _settle_output_directory(config)
        for key in PATH_KEYS:
            value = OmegaConf.select(config, key, throw_on_missing=False)
            if isinstance(value, str):
                OmegaConf.update(config, key, _absolute(value))
            elif isinstance(value, ListConfig):
                OmegaConf.update(config, key, [_absolute(item) for item in value])
    return config


def _absolute(path: str) -> str:
    """The path as it is meant here; what names no local file or pattern (a model of the hub, a URL) stays."""
    local = os.path.expanduser(path)
    is_pattern = glob.has_magic(local) and "://" not in local
    return os.path.abspath(local) if os.path.exists(local) or is_pattern else path


def check_run(config: Any) -> None:
    """Validate a run and say its batch arithmetic; configurations of other programs check themselves field by field."""
    if isinstance(config, RunConfig):
        validate(config)
        for sentence in explain(config):
            logger.info(sentence)


def report(error: VerlError, code: int) -> int:
    """Print one readable message (with the trace at debug level) and give back the exit code."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1" or logging.getLogger("verl").isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    sys.stderr.write(f"{type(error).__name__}: {error}\n")
    return code


def help_text(line: CommandLine) -> str:
    """What the command line understands."""
    return f"""\
python -m {line.config_module.rpartition(".")[0]}.<main> [key=value ...]

  key=value         change a key of {line.config_name}.yaml
  +key=value        add a key that the file does not have; ++key=value: either
  ~key              remove a key
  --config-name N   another primary file; --config-path DIR: from there; --config-dir DIR: look there too
  --cfg job         print the composed configuration and stop (--resolve: with references worked out)

Keys, types and defaults: --cfg job. Meaning and range: the dataclasses in verl/config.
"""


def _check_explicit_pool_n(config: DictConfig, line: CommandLine) -> None:
    group = OmegaConf.select(config, "actor_rollout_ref.rollout.n")
    pool_n = OmegaConf.select(config, "rollout.n")
    if line.given("rollout.n") and pool_n is not None and pool_n != group:
        raise pool_n_error(pool_n, group)


def _settle_output_directory(config: DictConfig) -> None:
    trainer = config.get("trainer")
    if trainer is None or "default_local_dir" not in trainer:
        return
    plain: Any = OmegaConf.to_container(trainer, resolve=False)
    raw = plain["default_local_dir"]
    path = Path(str(trainer.default_local_dir)).expanduser()
    if raw == DEFAULT_LOCAL_DIR:
        path = verl_home() / path
    trainer.default_local_dir = str(Path.cwd() / path)


def verl_home() -> Path:
    """$VERL_HOME, by default ~/.verl: runs and caches that nobody gave a place."""
    return Path(os.environ.get("VERL_HOME", "~/.verl")).expanduser().absolute()
