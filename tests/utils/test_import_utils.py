# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""User code by path, and the small questions about installed packages."""

import sys
from pathlib import Path

import pytest

from verl.errors import ConfigError
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


@pytest.mark.parametrize(("minver", "expected"), [("0.0.1", True), ("9999", False)])
def test_the_version_of_a_package_is_compared_as_a_version(minver: str, expected: bool) -> None:
    assert import_utils.is_version_ge(pkg="numpy", minver=minver) is expected
    # As text "2.10" would come before "2.9".
    assert import_utils.is_version_ge(pkg="a-package-nobody-has", minver="0") is False


def test_whether_an_optional_package_is_there_is_answered_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nvtx", raising=False)
    (tmp_path / "nvtx.py").write_text("raise RuntimeError('imported')")
    assert import_utils.is_nvtx_available()
