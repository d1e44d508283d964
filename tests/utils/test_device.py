# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The old device functions on this machine."""

import pytest
from omegaconf import OmegaConf

from verl.platform import current_platform
from verl.utils import device


def test_the_old_functions_answer_as_the_platform() -> None:
    platform = current_platform()
    assert device.get_device_name() == platform.device_type
    assert device.get_nccl_backend() == platform.collective
    assert device.get_visible_devices_keyword() == platform.visible_devices_env
    assert device.get_resource_name() == platform.ray_resource
    assert device.get_torch_device() is platform.device_module
    assert device.is_support_ipc() == (platform.ipc != "none")
    assert device.is_cuda_available == (platform.device_type == "cuda")
    assert device.is_npu_available == device.is_torch_npu_available()
    assert device.get_device_id() == platform.current_device()
    device.set_expandable_segments(False)


def test_a_recipes_own_configuration_gets_the_device() -> None:
    config = OmegaConf.create({"trainer": {"device": "cuda"}})
    OmegaConf.set_struct(config, True)
    device.auto_set_device(config)
    assert config.trainer.device == current_platform().device_type
    device.auto_set_device(OmegaConf.create({}))


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="is_tpu_available"):
        _ = device.is_tpu_available
