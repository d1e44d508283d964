# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""User code by path, and the small questions about installed packages."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verl.errors import ConfigError, UnsupportedError
from verl.utils import import_utils


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    file = tmp_path / "my-reward.py"
    file.write_text("class Scorer:\n    weight = 3\n\nLOADED = []\n")
    return file


def test_an_object_comes_from_a_file_by_the_old_argument_names(user_file: Path) -> None:
    assert import_utils.load_extern_object(module_path=str(user_file), object_name="Scorer").weight == 3


def test_a_file_is_loaded_once(user_file: Path) -> None:
    first = import_utils.load_module(str(user_file))
    assert import_utils.load_module(module_path=f"file://{user_file}") is first


def test_two_files_are_two_modules_however_often_they_are_asked_for(tmp_path: Path) -> None:
    for name, score in (("a.py", 1), ("b.py", 2), ("with space/a.py", 3)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        count = f"open({str(tmp_path / 'runs')!r}, 'a').write({str(score)!r})\n"
        (tmp_path / name).write_text(count + f"def compute_score():\n    return {score}\n")
    names = ("a.py", "b.py", "a.py", "with space/a.py", "a.py")
    scores = [import_utils.load_extern_object(str(tmp_path / name), "compute_score")() for name in names]
    assert scores == [1, 2, 1, 3, 1]
    assert (tmp_path / "runs").read_text() == "123", "each file ran once"


def test_a_module_gets_the_name_it_was_given(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "my_scorer", None)
    module = import_utils.load_module(str(user_file), module_name="my_scorer")
    assert sys.modules["my_scorer"] is module


def test_a_missing_object_is_answered_with_those_there_are(user_file: Path) -> None:
    with pytest.raises(ConfigError, match="LOADED, Scorer"):
        import_utils.load_extern_object(str(user_file), "Missing")


def test_an_extern_type_comes_with_one_warning(user_file: Path) -> None:
    with pytest.warns(FutureWarning, match="load_extern_type is deprecated; use load_extern_object"):
        scorer = import_utils.load_extern_type(file_path=str(user_file), type_name="Scorer")
    assert scorer.weight == 3


def test_a_deprecated_function_warns_at_its_first_call_only(recwarn: pytest.WarningsRecorder) -> None:
    @import_utils.deprecated(replacement="new_way")
    def old_way(a: int, *, b: int) -> int:
        """Doc."""
        return a + b

    assert [old_way(1, b=2), old_way(3, b=4)] == [3, 7]
    assert old_way.__doc__ == "Doc."
    assert len([item for item in recwarn if "use new_way" in str(item.message)]) == 1


@pytest.mark.parametrize("given", ["json", ["json", "decimal"], None])
def test_external_libraries_are_imported(given: object, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [given] if isinstance(given, str) else given or []
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import_utils.import_external_libs(external_libs=given)
    assert all(name in sys.modules for name in names)


@pytest.mark.parametrize(
    ("installed", "minver", "expected"),
    [
        # As text "0.9" would come after "0.11", and "2.10" before "2.9".
        ("0.9.0", "0.11.0", False),
        ("0.11.0", "0.9.0", True),
        ("0.18.1rc1", "0.18.0", True),
        ("0.18.0rc1", "0.18.0", False),
        ("0.19.0.dev3+g12ab", "0.18.0", True),
        ("2.10.0+rocm7.2", "2.9", True),
        ("2.10.0+rocm7.2", "2.10.0", True),
    ],
)
def test_the_version_of_a_package_is_compared_as_a_version(
    installed: str, minver: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / f"some_engine-{installed}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: some-engine\nVersion: {installed}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert import_utils.is_version_ge(pkg="some-engine", minver=minver) is expected
    assert import_utils.is_version_ge(pkg="a-package-nobody-has", minver="0") is False


def test_nobody_compares_a_version_as_text() -> None:
    package = Path(import_utils.__file__).parents[1]
    found = [
        f"{path}:{node.lineno}"
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and any("__version__" in ast.unparse(side) for side in _bare(node))
    ]
    assert found == []


def _bare(node: ast.Compare) -> list[ast.expr]:
    """The sides of a comparison that are names or attributes, not calls such as Version(...)."""
    ordered = any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops)
    sides = [node.left, *node.comparators] if ordered else []
    return [side for side in sides if isinstance(side, ast.Name | ast.Attribute)]


@pytest.mark.parametrize("module", ["broken_engine", "broken_engine.part"])
def test_a_package_that_is_broken_says_what_broke_it(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_engine").mkdir()
    (tmp_path / "broken_engine" / "__init__.py").write_text("raise ImportError('libfoo.so: cannot open')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnsupportedError, match=r"rollout.name=broken needs.*libfoo.so: cannot open.*change rollout"):
        import_utils.optional_import(module, needed_for="rollout.name=broken")


def test_a_broken_vllm_shows_its_own_error_when_its_replica_is_asked_to_start(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise ImportError('libfoo.so: cannot open')")
    code = "from verl.workers.rollout.vllm_rollout import vllm_symbols; vllm_symbols.load()"
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(import_utils.__file__).parents[2]}"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert "UnsupportedError" in done.stderr and "libfoo.so: cannot open" in done.stderr


def test_whether_an_optional_package_is_there_is_answered_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nvtx", raising=False)
    (tmp_path / "nvtx.py").write_text("raise RuntimeError('imported')")
    assert import_utils.is_nvtx_available()
