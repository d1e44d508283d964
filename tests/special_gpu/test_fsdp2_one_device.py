# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 on one device trains as on the CPU, and gives its memory back when it is asked to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.special_distributed.engine_ranks import full_weights, make_engine, train
from verl.platform import current_platform
from verl.utils.distributed import initialize_global_process_group

pytestmark = pytest.mark.gpu

PARTS = {
    "model": {"override_config": {"attn_implementation": "sdpa"}},
    "engine": {"dtype": "float32", "model_dtype": "fp32"},
}
ON_CPU = """
import sys, torch
from tests.special_distributed.engine_ranks import trained
from tests.special_gpu.test_fsdp2_one_device import PARTS
from verl.utils.distributed import initialize_global_process_group
initialize_global_process_group()
torch.save(trained(sys.argv[1], **PARTS), sys.argv[2])
"""


def test_three_steps_give_the_weights_and_metrics_of_the_cpu(device: torch.device, model_dir: Path, tmp_path: Path):
    environ = {key: value for key, value in os.environ.items() if not key.startswith("RANK")}
    environ |= {"VERL_PLATFORM": "cpu", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", ON_CPU, str(model_dir), str(tmp_path / "cpu.pt")]
    subprocess.run(command, env=environ, check=True)
    expected, expected_metrics = torch.load(tmp_path / "cpu.pt", weights_only=False)

    initialize_global_process_group()
    engine = make_engine(model_dir, **PARTS)
    start = full_weights(engine)
    metrics = train(engine)
    got = full_weights(engine)
    assert {tensor.device.type for tensor in got.values()} == {device.type}
    for name, tensor in expected.items():
        # Kernels differ in the order of sums; a step moves a weight by about 1e-2.
        torch.testing.assert_close(
            got[name].cpu(), tensor, rtol=0, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
        assert not torch.equal(start[name].cpu(), tensor), f"{name} was trained"
    for mine, theirs in zip(metrics, expected_metrics, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4, abs=1e-5)


def test_offloading_gives_the_devices_memory_back_and_training_goes_on(device: torch.device, model_dir: Path):
    initialize_global_process_group()
    platform = current_platform()
    engine = make_engine(model_dir, **PARTS)
    train(engine)
    before, weights = platform.memory_info()["allocated"], full_weights(engine)
    engine.to("cpu")
    offloaded = platform.memory_info()["allocated"]
    engine.to(platform.device_type)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in full_weights(engine).items())
    train(engine, steps=1)
    if device.type != "cpu":
        # Parameters, gradients and two moments; the rest is the test's own copy.
        assert before - offloaded >= 3 * sum(tensor.nbytes for tensor in weights.values())
