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

from verl.config import validate
from verl.config.compose import parse_command_line
from verl.config.front_door import FULLY_ASYNC, load

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.sh"))
MODULE = "verl.experimental.fully_async_policy.fully_async_main"


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


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_composes_validates_and_stays_short(script: str, tmp_path: Path) -> None:
    module, *rest = arguments(script, tmp_path, "trainer.total_epochs=7")[1:]
    assert module == MODULE
    overrides = [item for item in rest if not item.startswith("--")]
    assert len(overrides) - 1 <= 15
    line = parse_command_line(rest, FULLY_ASYNC, "fully_async_ppo_trainer")
    config, _ = load(rest, config_name=line.config_name)
    validate(config)
    assert config.trainer.total_epochs == 7
    assert config.trainer.default_local_dir == str(tmp_path / "out")
    assert config.actor_rollout_ref.model.path.endswith("a model")


def test_there_is_an_example_for_each_size() -> None:
    assert {"cpu.sh", "one_node.sh", "dapo_4_4.sh", "several_nodes.sh"} <= set(SCRIPTS)
    readme = (EXAMPLES / "README.md").read_text()
    assert all(f"`{path.name}`" in readme for path in EXAMPLES.iterdir() if path.name != "README.md")


@pytest.mark.parametrize("script", [*SCRIPTS, "slurm.sbatch"])
def test_the_scripts_parse(script: str) -> None:
    subprocess.run(["bash", "-n", str(EXAMPLES / script)], check=True)


def test_gsm8k_rows_become_the_columns_of_the_data_set(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.parquet"
    source.write_text(json.dumps({"question": "2 * 600?", "answer": "It is <<2*600=1200>>.\n#### 1,200"}) + "\n")
    subprocess.run([sys.executable, str(EXAMPLES / "prepare_gsm8k.py"), str(source), str(target), "test"], check=True)
    (row,) = pq.read_table(target).to_pylist()
    assert row["reward_model"] == {"style": "rule", "ground_truth": "1200"}
    assert row["prompt"][0]["content"].startswith("2 * 600?") and row["extra_info"]["split"] == "test"
