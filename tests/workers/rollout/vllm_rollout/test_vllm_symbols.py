# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The table of vLLM's names against the vLLM that is installed."""

import ast
from pathlib import Path

import pytest

import verl
from verl.errors import UnsupportedError
from verl.workers.rollout.vllm_rollout import vllm_symbols

PACKAGE = Path(verl.__file__).parent


def test_installed_vllm_has_every_name_and_parameter_of_the_table() -> None:
    assert vllm_symbols.mismatches() == []


def test_a_name_that_is_gone_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = (
        vllm_symbols.Symbol("vllm.sampling_params", "NoSuchThing"),
        vllm_symbols.Symbol("vllm.sampling_params", "SamplingParams", parameters=("no_such_field",)),
        vllm_symbols.Symbol("vllm.v1.engine.async_llm", "AsyncLLM", members=("no_such_method",)),
    )
    monkeypatch.setattr(vllm_symbols, "SYMBOLS", gone)
    first, second, third = vllm_symbols.mismatches()
    assert "NoSuchThing is missing" in first
    assert "takes no 'no_such_field'" in second
    assert "has no 'no_such_method'" in third


def test_another_version_is_refused_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm

    monkeypatch.setattr(vllm, "__version__", "0.33.1")
    with pytest.raises(UnsupportedError, match=r"0\.33\.1"):
        vllm_symbols.load()


def test_every_vllm_module_that_the_package_imports_is_in_the_table() -> None:
    known = {symbol.module for symbol in vllm_symbols.SYMBOLS} | {"vllm"}
    found: dict[str, str] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for name in _vllm_modules(node):
                found[name] = str(path.relative_to(PACKAGE))
    assert {name: where for name, where in found.items() if name not in known} == {}


def _vllm_modules(node: ast.AST) -> list[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("optional_import", "import_module"):
        names = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return [name for name in names if name == "vllm" or name.startswith("vllm.")]
