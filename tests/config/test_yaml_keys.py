# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Our YAML carries upstream's keys: same path, default and type; what we add is listed with a reason."""

import csv
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, ListConfig, OmegaConf

DATA = Path(__file__).parents[1] / "data"
FILES = {
    "ppo_trainer": "verl.trainer.config",
    "sft_trainer_engine": "verl.trainer.config",
    "evaluation": "verl.trainer.config",
    "fully_async_ppo_trainer": "verl.experimental.fully_async_policy.config",
    "one_step_off_ppo_trainer": "verl.experimental.one_step_off_policy.config",
}
TYPE_NAMES = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "dict"}


def leaves(node: DictConfig, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(path, default, type) of every leaf; references stay text, an empty section is a leaf."""
    for key in node:
        path = f"{prefix}.{key}" if prefix else key
        child = node._get_node(key)
        if child._is_missing():
            yield path, "???", "required"
        elif child._is_interpolation():
            yield path, child._value(), "interp"
        elif isinstance(child, DictConfig) and len(child):
            yield from leaves(child, path)
        else:
            value = OmegaConf.to_container(child) if isinstance(child, DictConfig | ListConfig) else child._value()
            yield path, value if isinstance(value, str) else json.dumps(value), TYPE_NAMES[type(value)]


def upstream_keys(name: str) -> dict[str, tuple[str, str]]:
    with (DATA / "config_keys.tsv").open(encoding="utf-8") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {key: (default, kind) for config, key, default, kind in rows if config == name}


def own_keys() -> set[str]:
    lines = (DATA / "own_keys.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    assert all(len(row) == 2 and len(row[1]) > 20 for row in rows), "each key of ours needs a tab and a reason"
    return {row[0] for row in rows}


@pytest.mark.parametrize("name", FILES)
def test_every_upstream_key_has_its_path_default_and_type(name: str, compose: Any) -> None:
    ours = {path: (default, kind) for path, default, kind in leaves(compose(name, FILES[name]))}
    different = {
        key: (ours.get(key), expected) for key, expected in upstream_keys(name).items() if ours.get(key) != expected
    }
    assert different == {}


@pytest.mark.parametrize("name", FILES)
def test_a_key_of_ours_is_listed_with_its_reason(name: str, compose: Any) -> None:
    ours = {path for path, _, _ in leaves(compose(name, FILES[name]))}
    assert ours - set(upstream_keys(name)) <= own_keys()


def test_every_listed_key_of_ours_exists(compose: Any) -> None:
    ours = {path for path, _, _ in leaves(compose("fully_async_ppo_trainer"))}
    assert own_keys() <= ours


@pytest.mark.parametrize("name", FILES)
def test_every_target_can_be_imported(name: str, compose: Any) -> None:
    targets = {default for path, default, _ in leaves(compose(name, FILES[name])) if path.endswith("_target_")}
    for target in targets:
        module, _, attribute = target.rpartition(".")
        if target == "verl.utils.profiler.ProfilerConfig":
            module = "verl.utils.profiler.config"
        assert hasattr(importlib.import_module(module), attribute), target


@pytest.mark.parametrize("name", ["ppo_trainer", "fully_async_ppo_trainer", "one_step_off_ppo_trainer"])
def test_keys_that_scripts_add_with_a_plus_stay_out_of_the_yaml(name: str, compose: Any) -> None:
    ours = {path for path, _, _ in leaves(compose(name, FILES[name]))}
    scripts = json.loads((DATA / "launch_scripts.json").read_text(encoding="utf-8"))
    added = {line[1:].partition("=")[0] for lines in scripts.values() for line in lines if line.startswith("+")}
    assert added and not added & ours


def test_hydra_writes_nothing(tmp_path: Path) -> None:
    """Also for a recipe that starts from our file through hydra.main, where our front door is not used."""
    import subprocess
    import sys

    program = tmp_path / "recipe.py"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "mine.yaml").write_text(
        "hydra:\n  searchpath: [pkg://verl.trainer.config]\ndefaults: [ppo_trainer, _self_]\n"
    )
    program.write_text(
        "import hydra\n"
        "@hydra.main(config_path='conf', config_name='mine', version_base=None)\n"
        "def main(config):\n    print(config.trainer.nnodes)\n"
        "main()\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run([sys.executable, str(program)], cwd=work, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1", done.stderr
    assert list(work.iterdir()) == []
