# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old import paths lead somewhere, or say what to use."""

import doctest
import importlib
import importlib.util
import inspect
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from verl.compat import ROADS, is_sentence
from verl.errors import UnsupportedAttribute, UnsupportedError, UnsupportedImport

ROOT = Path(__file__).parents[1]
MOVED = sorted(old for old, road in ROADS.items() if not is_sentence(road))
REFUSED = sorted(old for old, road in ROADS.items() if is_sentence(road))


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def look_up(path: str) -> object:
    """What `from module import name` gives, or the module."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("old", MOVED)
def test_a_moved_name_is_the_one_at_its_new_place(old: str) -> None:
    new = pkgutil.resolve_name(ROADS[old])
    found = look_up(old)
    if hasattr(new, "__file__"):
        public = getattr(new, "__all__", None) or [name for name in vars(new) if not name.startswith("_")]
        assert public
        assert all(getattr(found, name) is getattr(new, name) for name in public if f"{old}.{name}" not in ROADS)
    else:
        assert found is new


@pytest.mark.parametrize("old", REFUSED)
def test_a_name_that_is_left_out_says_what_to_use(old: str) -> None:
    with pytest.raises(UnsupportedImport) as caught:
        look_up(old)
    assert ROADS[old] in str(caught.value)


def places(sentence: str) -> list[str]:
    words = (word.strip("():,;.") for word in sentence.split())
    return [word for word in words if word.startswith("verl.")]


@pytest.mark.parametrize("sentence", sorted({road for road in ROADS.values() if is_sentence(road)}))
def test_what_a_sentence_names_exists(sentence: str) -> None:
    for place in places(sentence):
        assert pkgutil.resolve_name(place) is not None


def test_the_table_says_nothing_of_modules_that_exist() -> None:
    for old in ROADS:
        base = ROOT.joinpath(*old.split("."))
        assert not base.with_suffix(".py").exists(), old
        assert not (base / "__init__.py").exists(), old


# Modules of upstream that are neither here, moved, nor refused by a sentence of their own.
UNWRITTEN = {"verl.workers.utils.padding"}


def test_every_module_of_upstream_is_here_or_moved_or_says_what_to_use() -> None:
    unknown = set()
    for module in (ROOT / "tests" / "data" / "upstream_modules.txt").read_text().split():
        try:
            importlib.import_module(module)
        except UnsupportedImport:
            continue
        except ModuleNotFoundError:
            unknown.add(module)
    assert unknown <= UNWRITTEN


def test_a_refusal_is_an_import_error_that_survives_pickling() -> None:
    with pytest.raises(ImportError) as caught:
        from verl.workers.rollout.vllm_rollout import vLLMRollout  # noqa: F401
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, UnsupportedError)
    assert str(again) == str(caught.value)
    assert "ServerAdapter" in str(again)


REFUSED_NAMES = [old for old in REFUSED if not any(old.startswith(f"{above}.") for above in REFUSED)]


@pytest.mark.parametrize("old", REFUSED_NAMES)
def test_asking_a_module_for_a_name_that_is_left_out_is_answered_with_no(old: str) -> None:
    module, _, name = old.rpartition(".")
    home = importlib.import_module(module)
    assert not hasattr(home, name)
    assert getattr(home, name, "default") == "default"
    with pytest.raises(UnsupportedAttribute) as caught:
        getattr(home, name)
    assert ROADS[old] in str(caught.value)


@pytest.mark.parametrize("old", REFUSED_NAMES)
def test_an_import_of_a_name_that_is_left_out_says_what_to_use(old: str) -> None:
    module, _, name = old.rpartition(".")
    with pytest.raises(UnsupportedImport) as caught:
        exec(f"from {module} import {name}", {})
    assert ROADS[old] in str(caught.value)


def test_walks_over_a_module_do_not_meet_the_names_that_are_left_out() -> None:
    home = importlib.import_module("verl.utils.vllm.utils")
    assert "VLLMHijack" not in dict(inspect.getmembers(home))
    assert doctest.DocTestFinder(exclude_empty=False).find(home)


def test_pickle_may_ask_every_module_for_a_function_that_names_none() -> None:
    code = (
        "import pickle, verl.utils.vllm.utils\n"
        "def VLLMHijack(): pass\n"
        "VLLMHijack.__module__ = None\n"
        "print(pickle.loads(pickle.dumps(VLLMHijack)) is VLLMHijack)"
    )
    assert run(code).splitlines()[-1] == "True"


def test_a_name_that_nobody_knows_is_missing_in_the_usual_way() -> None:
    with pytest.raises(ImportError, match="cannot import name 'nothing_of_the_kind'"):
        from verl.utils.debug import nothing_of_the_kind
    with pytest.raises(ImportError, match="cannot import name 'nothing_of_the_kind'"):
        from verl.trainer.main_ppo import nothing_of_the_kind  # noqa: F401
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("verl.workers.nothing_of_the_kind")
    assert not hasattr(importlib.import_module("verl.utils.debug"), "nothing_of_the_kind")


def test_a_module_that_moved_warns_once_at_the_line_that_imports_it() -> None:
    said = run("import verl.utils.debug\nimport verl.utils.debug\nfrom verl.utils.debug import marked_timer")
    assert said.count("DeprecationWarning: verl.utils.debug is now verl.utils.profiler") == 1
    assert "<string>:1:" in said


def test_importing_everything_from_an_old_module_gives_the_new_names() -> None:
    assert "True" in run("from verl.utils.debug import *\nprint(callable(marked_timer))")


def test_a_front_door_can_still_be_run_as_a_module() -> None:
    spec = importlib.util.find_spec("verl.trainer.main_ppo")
    assert spec.loader.get_code("verl.trainer.main_ppo") is not None


def test_the_table_costs_the_import_of_verl_no_library() -> None:
    loaded = run(
        "import sys, verl\nprint({'torch', 'numpy', 'ray', 'transformers', 'vllm', 'importlib.abc'} & set(sys.modules))"
    )
    assert loaded.strip() == "set()"


def test_installing_twice_changes_nothing() -> None:
    code = (
        "import sys, verl.compat\nbefore = list(sys.meta_path)\nverl.compat.install()\nprint(sys.meta_path == before)"
    )
    assert "True" in run(code)
