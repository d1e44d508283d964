# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tests on a real accelerator; where there is none they are skipped with the reason.

`VERL_REHEARSE_GPU_TESTS=1` runs them on the CPU platform instead: what does not depend on a device is exercised, so
that these tests do not rot on machines without one.
"""

from pathlib import Path

import pytest
import torch

from verl.platform import current_platform
from verl.quickstart.model import save_tiny_model
from verl.utils.ray_utils import env_flag


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The first accelerator, which every test here asks for."""
    platform = current_platform()
    if platform.device_type != "cpu":
        return torch.device(platform.device_type, 0)
    if env_flag("VERL_REHEARSE_GPU_TESTS"):
        return torch.device("cpu")
    pytest.skip(f"needs an accelerator; this machine is {platform.describe()}")


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with heads of 64, which every attention kernel takes."""
    directory = tmp_path_factory.mktemp("model")
    save_tiny_model(directory, hidden=256, heads=4, kv_heads=2)
    return directory
