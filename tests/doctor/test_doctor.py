# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The doctor says what the machine is, where values come from, and what stands in the way of a run."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from verl.config.compose import compose_config, parse_command_line
from verl.config.front_door import FULLY_ASYNC, settle
from verl.config.run import RunConfig, build_config
from verl.doctor import machine
from verl.doctor.origin import leaves
from verl.doctor.preflight import num_parameters, preflight, unread_keys
from verl.platform import facts

MINIMAL = (
    "data.train_batch_size=0",
    "actor_rollout_ref.hybrid_engine=False",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "rollout.total_rollout_steps=5000",
)


def loaded(*overrides: str) -> tuple[RunConfig, Any, Any]:
    line = parse_command_line([*MINIMAL, *overrides], FULLY_ASYNC, "fully_async_ppo_trainer")
    composed = compose_config(line)
    return build_config(settle(composed, line), unknown="keep"), composed, line


def test_every_value_says_where_it_comes_from() -> None:
    origins = {leaf.path: leaf.origin for leaf in leaves(*loaded("trainer.seed=3", "++reward.reward_kwargs.a=1"))}
    assert origins["trainer.seed"] == origins["reward.reward_kwargs.a"] == "CLI"
    assert origins["data.seed"] == "derived"
    assert origins["actor_rollout_ref.rollout.prompt_length"] == "derived"
    assert origins["actor_rollout_ref.rollout.checkpoint_engine.backend"] == "file"
    assert origins["algorithm.gamma"] == origins["actor_rollout_ref.actor.optim.betas"] == "default"


def test_keys_that_nobody_reads_are_named() -> None:
    config, _, _ = loaded("+trainer.mine=1", "+actor_rollout_ref.actor.megatron.x=1")
    assert unread_keys(config) == ["trainer.mine"]
    # The actor shows the model and its engine too; each key is named once, where it was set.
    mine = ["actor_rollout_ref.actor.fsdp_config.mine", "actor_rollout_ref.model.mine"]
    assert unread_keys(loaded(*(f"+{key}=1" for key in mine))[0]) == mine


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (
            ["actor_rollout_ref.model.path=/no/such/model", "critic.model.path=/no/such/model"],
            "actor_rollout_ref.model.path",
        ),
        (["data.train_files=/no/such/file"], "data.train_files"),
        (["+trainer.mine=1"], "trainer.mine"),
        (["data.train_batch_size=3"], "configuration"),
        (["trainer.default_local_dir=/proc/nowhere"], "trainer.default_local_dir"),
    ],
)
def test_what_stands_in_the_way_has_a_remedy(overrides: list[str], name: str) -> None:
    found = {finding.name: finding for finding in preflight(loaded(*overrides)[0]) if finding.problem}
    if name == "trainer.default_local_dir" and name not in found:
        pytest.skip("this user may write everywhere")
    assert found[name].remedy


def test_patterns_and_directories_of_data_files_are_no_problem(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").touch()
    files = [f"data.train_files={tmp_path}/*.parquet", f"data.val_files=[{tmp_path}, s3://bucket/rows.parquet]"]
    assert not [finding for finding in preflight(loaded(*files)[0]) if finding.name.startswith("data.")]
    found = [finding for finding in preflight(loaded(f"data.train_files={tmp_path}/*.json")[0]) if finding.problem]
    assert any(finding.name == "data.train_files" and "matches none" in finding.value for finding in found)


def test_the_checkpoint_that_a_run_resumes_from_is_the_one_that_its_tracker_names(tmp_path: Path) -> None:
    for step in (20, 90, 100):
        (tmp_path / f"global_step_{step}").mkdir()

    def output() -> str:
        config = loaded(f"trainer.default_local_dir={tmp_path}")[0]
        return next(finding.value for finding in preflight(config) if finding.name == "output")

    # A folder alone is no complete checkpoint.
    assert output().endswith("starts fresh")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("100")
    assert output().endswith("resumes from global_step_100")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("110")
    found = {finding.name: finding for finding in preflight(loaded(f"trainer.default_local_dir={tmp_path}")[0])}
    assert found["trainer.default_local_dir"].problem


@pytest.mark.parametrize(("fsdp_size", "shards"), [(-1, 2), (1, 1), (8, 2)])
def test_memory_counts_the_shards_that_the_engine_will_make(tmp_path: Path, fsdp_size: int, shards: int) -> None:
    header = b'{"w":{"dtype":"F32","shape":[1000,1000000],"data_offsets":[0,0]}}'
    (tmp_path / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    config, _, _ = loaded(
        f"actor_rollout_ref.model.path={tmp_path}",
        f"critic.model.path={tmp_path}",
        "trainer.n_gpus_per_node=2",
        f"actor_rollout_ref.actor.fsdp_config.fsdp_size={fsdp_size}",
    )
    said = next(finding.value for finding in preflight(config) if finding.name == "memory")
    # 16 bytes a parameter; on a CPU the two ranks share one memory.
    assert f" {16 * 2 / shards:.2f} GB of weights" in said


def test_parameters_are_counted_from_the_files_headers(tmp_path: Path) -> None:
    save_file({"a": np.zeros((3, 4), np.float32), "b": np.zeros((), np.float16)}, tmp_path / "one.safetensors")
    save_file({"c": np.zeros((5,), np.float32)}, tmp_path / "two.safetensors")
    assert num_parameters(tmp_path) == 18
    assert num_parameters(tmp_path / "none") is None


def test_a_model_that_cannot_fit_is_named(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,0]}}'
    (tmp_path / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    config, _, _ = loaded(
        f"actor_rollout_ref.model.path={tmp_path}", f"critic.model.path={tmp_path}", "trainer.n_gpus_per_node=1"
    )
    found = [finding for finding in preflight(config) if finding.name == "memory"]
    assert found[0].problem and "1000000.0 M parameters" in found[0].value


def test_a_package_that_breaks_transformers_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torchvision.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(facts, "torch_build", lambda: {"__version__": "2.13.0+cpu"})
    found = [finding for finding in machine.examine() if finding.name == "torchvision beside torch +cpu"]
    assert found[0].remedy == "pip uninstall torchvision"


def test_masks_that_contradict_are_a_problem_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.platform.rocm import ROCmPlatform

    monkeypatch.setattr(machine, "current_platform", lambda: ROCmPlatform("simulated"))
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    found = [finding for finding in machine.examine() if finding.name == "platform"]
    assert found[0].problem and "unset CUDA_VISIBLE_DEVICES" in found[0].remedy


def test_the_command_prints_three_parts_and_its_exit_code_tells_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "rows.parquet").touch()
    files = [
        f"data.train_files={tmp_path}/rows.parquet",
        "data.val_files=null",
        f"actor_rollout_ref.model.path={tmp_path}/model",
        f"critic.model.path={tmp_path}/model",
    ]
    command = [sys.executable, "-m", "verl.doctor", *MINIMAL, *files, f"trainer.default_local_dir={tmp_path}/out"]
    good = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [part in good.stdout for part in ("Machine", "Configuration", "Preflight")] == [True] * 3
    assert "! " not in good.stdout and good.returncode == 0, good.stdout
    bad = subprocess.run([*command, "+trainer.mine=1"], capture_output=True, text=True, check=False)
    assert bad.returncode == 1 and "! trainer.mine: nobody in verl reads this key" in bad.stdout
    wrong = subprocess.run([*command, "trainer.nnode=1"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "Did you mean trainer.nnodes" in wrong.stderr
