# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The launch scripts of examples/ are run with a Python that only tells what it was given."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from verl.config import build_sft_config, validate
from verl.config.compose import compose_config, parse_command_line
from verl.config.front_door import FULLY_ASYNC, load

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.sh"))
MODULE = "verl.experimental.fully_async_policy.fully_async_main"
CONFIGURATIONS = {
    MODULE: (FULLY_ASYNC, "fully_async_ppo_trainer"),
    "verl.experimental.one_step_off_policy.main_ppo": (
        "verl.experimental.one_step_off_policy.config",
        "one_step_off_ppo_trainer",
    ),
    "verl.trainer.main_ppo": ("verl.trainer.config", "ppo_trainer"),
}
# It is started by torchrun and has a configuration of its own.
SUPERVISED = "sft.sh"


def arguments(script: str, tmp_path: Path, *extra: str) -> list[str]:
    teller = tmp_path / "python"
    teller.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    teller.chmod(0o755)
    environment = {
        **os.environ,
        "PYTHON": str(teller),
        "MODEL": str(tmp_path / "a model"),
        "TRAIN": "/data/train.parquet",
        "TEST": "/data/test.parquet",
        "OUT": str(tmp_path / "out"),
    }
    result = subprocess.run(
        ["bash", str(EXAMPLES / script), *extra], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != SUPERVISED])
def test_an_example_composes_validates_and_stays_short(script: str, tmp_path: Path) -> None:
    module, *rest = arguments(script, tmp_path, "trainer.total_epochs=7")[1:]
    folder, name = CONFIGURATIONS[module]
    overrides = [item for item in rest if not item.startswith("--")]
    assert len(overrides) - 1 <= 15
    line = parse_command_line(rest, folder, name)
    config, _ = load(rest, folder, line.config_name)
    validate(config)
    assert config.trainer.total_epochs == 7
    assert config.trainer.default_local_dir == str(tmp_path / "out")
    assert config.actor_rollout_ref.model.path.endswith("a model")


def test_the_supervised_example_composes_and_is_started_by_torchrun(tmp_path: Path) -> None:
    told = arguments(SUPERVISED, tmp_path, "trainer.total_epochs=7")
    assert told[:5] == ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=8", "-m"]
    module, *overrides = told[5:]
    assert module == "verl.trainer.sft_trainer"
    config = build_sft_config(
        compose_config(parse_command_line(overrides, "verl.trainer.config", "sft_trainer_engine"))
    )
    assert (config.trainer.total_epochs, config.trainer.save_freq) == (7, "after_each_epoch")
    assert config.model.path.endswith("a model") and config.data.train_files == "/data/train.parquet"


def test_there_is_an_example_for_each_size() -> None:
    assert {
        "cpu.sh",
        "one_node.sh",
        "dapo_4_4.sh",
        "several_nodes.sh",
        "one_step_off.sh",
        "colocated.sh",
        SUPERVISED,
    } <= set(SCRIPTS)
    readme = (EXAMPLES / "README.md").read_text()
    assert all(f"`{path.name}`" in readme for path in EXAMPLES.iterdir() if path.name != "README.md")


@pytest.mark.parametrize("script", [*SCRIPTS, "slurm.sbatch"])
def test_the_scripts_parse(script: str) -> None:
    subprocess.run(["bash", "-n", str(EXAMPLES / script)], check=True)


# A cluster under Slurm: each program tells that it was called; a node is seen one call after it was started.
SLURM = {
    "scontrol": "printf 'node1\\nnode2\\nnode3\\n'",
    "srun": """while [[ $1 == -* ]]; do [[ $1 == -w ]] && { export NODE=$2; shift; }; shift; done; exec "$@" """,
    "hostname": "echo 10.0.0.1",
    "sleep": "echo sleep >>$TOLD",
    "ray": 'echo "ray $NODE $HSA_NO_SCRATCH_RECLAIM$RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO $*" >>$TOLD',
    "python": """if [ "$1" = -c ]; then
        joined=$(grep -c "^ray" "$TOLD"); [ "$joined" -le "$STAYS_AT" ] || joined=$STAYS_AT
        calls=$(grep -c "^asked $joined" "$TOLD"); echo "asked $joined" >>$TOLD
        [ "$calls" -gt 0 ] || exit 1
        echo "$joined"
    else echo "launch on $NODE at $RAY_ADDRESS: $2 $*" >>$TOLD; fi""",
}


def slurm(tmp_path: Path, stays_at: int) -> tuple[int, str, list[str]]:
    """Exit code, error and what was called in which order when three nodes are given and so many of them join."""
    for name, text in SLURM.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    told = tmp_path / "told"
    told.touch()
    paths = {"MODEL": "/m", "TRAIN": "/t", "TEST": "/v", "OUT": "/shared", "TOLD": str(told)}
    environ = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_JOB_NODELIST": "node[1-3]",
        "STAYS_AT": str(stays_at),
        **paths,
    }
    command = ["bash", "examples/slurm.sbatch"]
    done = subprocess.run(command, cwd=EXAMPLES.parent, env=environ, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr, told.read_text().splitlines()


def test_under_slurm_the_launch_waits_for_every_node(tmp_path: Path) -> None:
    code, error, told = slurm(tmp_path, stays_at=3)
    assert code == 0, error
    started = [line for line in told if line.startswith("ray")]
    assert started[0] == "ray node1 10 start --head --port=6379 --num-gpus=8 --block"
    assert sorted(started[1:]) == [
        f"ray node{number} 10 start --address=10.0.0.1:6379 --num-gpus=8 --block" for number in (2, 3)
    ]
    assert told[-1].startswith(f"launch on node1 at 10.0.0.1:6379: {MODULE}")
    assert told.index(started[0]) < told.index("asked 1") < told.index(started[1]), (
        "the head is there before the others"
    )


def test_under_slurm_a_node_that_never_joins_is_an_error_that_counts(tmp_path: Path) -> None:
    code, error, told = slurm(tmp_path, stays_at=2)
    assert code == 1 and not any(line.startswith("launch") for line in told)
    assert "2 of 3 nodes are in the Ray cluster at 10.0.0.1:6379" in error


def test_gsm8k_rows_become_the_columns_of_the_data_set(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.parquet"
    source.write_text(json.dumps({"question": "2 * 600?", "answer": "It is <<2*600=1200>>.\n#### 1,200"}) + "\n")
    subprocess.run([sys.executable, str(EXAMPLES / "prepare_gsm8k.py"), str(source), str(target), "test"], check=True)
    (row,) = pq.read_table(target).to_pylist()
    assert row["reward_model"] == {"style": "rule", "ground_truth": "1200"}
    assert row["prompt"][0]["content"].startswith("2 * 600?") and row["extra_info"]["split"] == "test"
