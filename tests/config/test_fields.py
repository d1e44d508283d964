# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every field of every section says what it means, and asking for the sections is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import verl.config

FILES = sorted(Path(verl.config.__file__).parent.glob("*.py"))
SECTIONS = ("Node", "Config")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_field_is_followed_by_its_meaning(file: Path) -> None:
    silent = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ClassDef) or not any(ast.unparse(base).endswith(SECTIONS) for base in node.bases):
            continue
        for here, after in zip(node.body, [*node.body[1:], None], strict=True):
            said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(here, ast.AnnAssign) and not said:
                silent.append(f"{node.name}.{ast.unparse(here.target)}")
    assert silent == []


def test_importing_the_configuration_loads_nothing_heavy() -> None:
    heavy = {"torch", "ray", "transformers", "hydra", "numpy", "vllm"}
    modules = "verl.config, verl.workers.config, verl.trainer.config, verl.trainer.ppo.utils"
    code = f"import sys, {modules}; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
