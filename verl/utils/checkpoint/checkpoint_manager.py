# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where checkpoints are, which is the latest, which are removed; what goes into one; random states."""

import logging
import os
import random
import re
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verl.errors import CheckpointError, ConfigError, UnsupportedError
from verl.platform import current_platform

logger = logging.getLogger(__name__)

CONTENTS = ("model", "optimizer", "extra", "hf_model")
_STEP_FOLDER = re.compile(r"global_step_(\d+)")


def get_checkpoint_tracker_filename(root_path: str) -> str:
    """The file that names the latest complete step; it is written last."""
    return os.path.join(root_path, "latest_checkpointed_iteration.txt")


def find_latest_ckpt_path(path: str | None, directory_format: str = "global_step_{}") -> str | None:
    """Folder of the latest complete checkpoint under `path`, or None where nothing was saved yet.

    A tracker that names a folder which is gone is an error: starting over in silence would throw the run away.
    """
    if path is None or not os.path.exists(get_checkpoint_tracker_filename(path)):
        return None
    tracker = Path(get_checkpoint_tracker_filename(path))
    text = tracker.read_text().strip()
    if not text.isdigit():
        raise CheckpointError("the tracker file does not hold a step", where=str(tracker), got=text)
    folder = os.path.join(path, directory_format.format(int(text)))
    if not os.path.isdir(folder):
        raise CheckpointError(
            f"the tracker names step {text}, whose folder is gone",
            where=str(tracker),
            expected=folder,
            remedy="put the folder back, write an existing step into the tracker, or set trainer.resume_mode=disable",
        )
    return folder


def step_of(path: str | Path) -> int:
    """Step number in the last component of `…/global_step_N`; anything else is an error."""
    name = Path(os.path.abspath(os.path.expanduser(path))).name
    match = _STEP_FOLDER.fullmatch(name)
    if match is None:
        raise CheckpointError("not a checkpoint folder", where=str(path), got=name, expected="global_step_<number>")
    return int(match.group(1))


def should_save_ckpt_esi(max_steps_duration: float, save_ckpt_duration: float = 60, redundant_time: float = 0) -> bool:
    """Whether the machine's lease ends too soon for another step of `max_steps_duration` s.

    The end (unix s) comes from `MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP` or
    `SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP`; without either there is no lease.
    """
    for name in ("MLP", "SAGEMAKER"):
        expires = os.environ.get(f"{name}_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP")
        if expires:
            left_s = float(expires) - time.time()
            return max_steps_duration > 0 and left_s - save_ckpt_duration - redundant_time <= max_steps_duration
    return False


class BaseCheckpointManager:
    """What every engine's checkpoint has in common; subclasses write and read the files.

    `checkpoint_config.save_contents` and `load_contents` choose among `model`, `optimizer`, `extra` (schedule and
    random states) and `hf_model` (a folder that transformers and vLLM load).
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        lr_scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
        processing_class: Any = None,
        checkpoint_config: Any = None,
    ) -> None:
        self.model = model
        # `should_save_optimizer` and `should_load_optimizer` say whether there is one.
        self.optimizer: Any = optimizer
        self.lr_scheduler = lr_scheduler
        self.processing_class = processing_class
        config = checkpoint_config or {}
        default = ("model", "optimizer", "extra")
        self.save_contents = _checked_contents(config.get("save_contents") or default, "save_contents")
        self.load_contents = _checked_contents(config.get("load_contents") or self.save_contents, "load_contents")
        if config.get("async_save", False):
            raise UnsupportedError(
                "saving in the background is not supported by this engine",
                where="checkpoint.async_save",
                remedy="set it to false; a save blocks training until it is complete",
            )
        self.previous_saved_paths: list[str] = []

    @property
    def should_save_model(self) -> bool:
        return "model" in self.save_contents

    @property
    def should_save_optimizer(self) -> bool:
        return "optimizer" in self.save_contents and self.optimizer is not None

    @property
    def should_save_extra(self) -> bool:
        return "extra" in self.save_contents

    @property
    def should_save_hf_model(self) -> bool:
        return "hf_model" in self.save_contents

    @property
    def should_load_model(self) -> bool:
        return "model" in self.load_contents

    @property
    def should_load_optimizer(self) -> bool:
        return "optimizer" in self.load_contents and self.optimizer is not None

    @property
    def should_load_extra(self) -> bool:
        return "extra" in self.load_contents

    def register_checkpoint(self, new_path: str, max_ckpt_to_keep: int | None) -> None:
        """Note a complete checkpoint, then remove the oldest ones of this process beyond `max_ckpt_to_keep`.

        None, 0 and negative numbers keep all. Only what was saved through this manager is ever removed.
        """
        if new_path not in self.previous_saved_paths:
            self.previous_saved_paths.append(new_path)
        if max_ckpt_to_keep is None or max_ckpt_to_keep <= 0:
            return
        while len(self.previous_saved_paths) > max_ckpt_to_keep:
            self.remove_previous_save_local_path(self.previous_saved_paths.pop(0))

    def remove_previous_save_local_path(self, path: str | list[str]) -> None:
        """Delete folders of old checkpoints; one that is already gone is fine."""
        for folder in [path] if isinstance(path, str) else path:
            logger.info("removing the old checkpoint %s", folder)
            shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def get_rng_state() -> dict[str, Any]:
        """States of torch, NumPy and Python generators, and of the accelerator where there is one."""
        platform = current_platform()
        states = {"cpu": torch.get_rng_state(), "numpy": np.random.get_state(), "random": random.getstate()}
        device_state = platform.random_state()
        return states if device_state is None else {**states, platform.device_type: device_state}

    @staticmethod
    def load_rng_state(rng_state: dict[str, Any]) -> None:
        """Restore what `get_rng_state` gave; entries of a device that this machine lacks are left aside."""
        torch.set_rng_state(rng_state["cpu"])
        np.random.set_state(rng_state["numpy"])
        random.setstate(rng_state["random"])
        platform = current_platform()
        if platform.device_type != "cpu":
            platform.set_random_state(rng_state.get(platform.device_type))


def _checked_contents(contents: Any, key: str) -> tuple[str, ...]:
    unknown = [item for item in contents if item not in CONTENTS]
    if unknown:
        raise ConfigError(
            "unknown part of a checkpoint", where=f"checkpoint.{key}", got=unknown, expected=f"some of {list(CONTENTS)}"
        )
    return tuple(contents)
