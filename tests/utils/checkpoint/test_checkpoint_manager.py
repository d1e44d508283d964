# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where checkpoints are, which stay, what belongs into one."""

import random
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from verl.errors import CheckpointError, ConfigError, UnsupportedError
from verl.utils.checkpoint.checkpoint_manager import (
    BaseCheckpointManager,
    find_latest_ckpt_path,
    get_checkpoint_tracker_filename,
    should_save_ckpt_esi,
    step_of,
)


@pytest.mark.parametrize(
    "path, step",
    [
        ("/e/global_step_900/a/global_step_12", 12),
        ("/e/global_step_12/", 12),
        ("/x y/global_step_3", 3),
        ("global_step_7", 7),
    ],
)
def test_the_step_is_in_the_last_component(path, step):
    assert step_of(path) == step


@pytest.mark.parametrize("path", ["/e/global_step_37/actor", "/e/global_step_x", "/e/global_step_"])
def test_a_path_that_does_not_end_in_a_step_is_refused(path):
    with pytest.raises(CheckpointError, match="global_step_<number>"):
        step_of(path)


def test_nothing_saved_yet_is_no_path(tmp_path):
    assert find_latest_ckpt_path(None) is None
    assert find_latest_ckpt_path(str(tmp_path)) is None


def test_the_tracker_names_the_latest(tmp_path):
    (tmp_path / "global_step_12").mkdir()
    Path(get_checkpoint_tracker_filename(str(tmp_path))).write_text("12\n")
    assert find_latest_ckpt_path(str(tmp_path)) == str(tmp_path / "global_step_12")


def test_a_tracker_whose_folder_is_gone_is_an_error_and_not_a_fresh_start(tmp_path):
    Path(get_checkpoint_tracker_filename(str(tmp_path))).write_text("12")
    with pytest.raises(CheckpointError, match=r"names step 12.*resume_mode=disable"):
        find_latest_ckpt_path(str(tmp_path))


def test_a_tracker_that_holds_no_number_is_an_error(tmp_path):
    Path(get_checkpoint_tracker_filename(str(tmp_path))).write_text("latest")
    with pytest.raises(CheckpointError, match="'latest'"):
        find_latest_ckpt_path(str(tmp_path))


def test_contents_default_to_everything_but_the_full_weights():
    manager = BaseCheckpointManager(nn.Linear(1, 1))
    assert manager.should_save_model and manager.should_save_extra and not manager.should_save_hf_model
    # Without an optimizer there is nothing to save or load of it.
    assert not manager.should_save_optimizer and not manager.should_load_optimizer


def test_what_is_loaded_follows_what_is_saved():
    manager = BaseCheckpointManager(nn.Linear(1, 1), checkpoint_config={"save_contents": ["model"]})
    assert manager.should_load_model and not manager.should_load_extra


def test_an_unknown_part_is_refused():
    with pytest.raises(ConfigError, match=r"checkpoint\.save_contents.*'weights'"):
        BaseCheckpointManager(nn.Linear(1, 1), checkpoint_config={"save_contents": ["weights"]})


def test_saving_in_the_background_is_refused():
    with pytest.raises(UnsupportedError, match="async_save"):
        BaseCheckpointManager(nn.Linear(1, 1), checkpoint_config={"async_save": True})


@pytest.mark.parametrize(
    "keep, left", [(2, ["3", "4"]), (1, ["4"]), (None, ["1", "2", "3", "4"]), (0, ["1", "2", "3", "4"])]
)
def test_the_oldest_go_when_a_new_one_is_complete(tmp_path, keep, left):
    manager = BaseCheckpointManager(nn.Linear(1, 1))
    for step in "1234":
        (tmp_path / step).mkdir()
        manager.register_checkpoint(str(tmp_path / step), keep)
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_saving_a_step_again_does_not_count_twice(tmp_path):
    manager = BaseCheckpointManager(nn.Linear(1, 1))
    (tmp_path / "1").mkdir()
    for _ in range(3):
        manager.register_checkpoint(str(tmp_path / "1"), 1)
    assert (tmp_path / "1").exists()


def test_random_states_come_back_and_a_foreign_devices_is_left_aside():
    """A checkpoint of a GPU machine is loaded on a CPU machine."""
    state = BaseCheckpointManager.get_rng_state()
    drawn = (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random())
    BaseCheckpointManager.load_rng_state({**state, "cuda": torch.zeros(16, dtype=torch.uint8)})
    assert (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()) == drawn


@pytest.mark.parametrize(
    "left_s, longest_step_s, due", [(1000, 100, False), (150, 100, True), (150, 0, False), (1000, 950, True)]
)
def test_a_lease_that_ends_before_the_next_step_asks_for_a_save(monkeypatch, left_s, longest_step_s, due):
    monkeypatch.setenv("SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP", str(time.time() + left_s))
    assert should_save_ckpt_esi(longest_step_s, save_ckpt_duration=60) is due


def test_without_a_lease_nothing_is_due():
    assert not should_save_ckpt_esi(100)
