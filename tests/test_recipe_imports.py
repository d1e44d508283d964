# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What public recipes import: works under upstream's argument names, or refuses with a sentence that says what to use.

`data/recipe_imports.tsv`: module, name (empty: the module itself), number of recipes that use it, and what upstream
records of it: `(arguments)` of the call, `method(arguments)`, members; `=` marks an optional argument, what follows
`*` is given by keyword. Whether the value is right is tested where each name lives (defaults of configurations in
`config/test_upstream_defaults.py`).
"""

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from verl.compat import ROADS, is_sentence
from verl.errors import UnsupportedImport

LIST = Path(__file__).parent / "data" / "recipe_imports.tsv"


@dataclass(frozen=True)
class Use:
    module: str
    name: str
    uses: int
    record: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.module}.{self.name}".rstrip(".")


def read_list() -> Iterator[Use]:
    for line in LIST.read_text(encoding="utf-8").splitlines():
        module, name, uses, record = line.split("\t")
        yield Use(module, name, int(uses), tuple(part for part in record.split("; ") if part))


USES = list(read_list())


# Names that are there but are built in another way; they do not count as working.
OTHERWISE = {
    "verl.workers.rollout.vllm_rollout.vllm_async_server.vLLMHttpServer",
}


def load(use: Use) -> Any:
    module = importlib.import_module(use.module)
    if not use.name:
        return module
    try:
        return getattr(module, use.name)
    except AttributeError:
        return importlib.import_module(f"{use.module}.{use.name}")


def is_refused(use: Use) -> bool:
    """Whether the table refuses the name or a module above it."""
    path = str(use)
    while path:
        if path in ROADS:
            return is_sentence(ROADS[path])
        path = path.rpartition(".")[0]
    return False


def plain_class(found: Any) -> Any:
    """The class behind a Ray actor class."""
    metadata = getattr(found, "__ray_metadata__", None)
    return metadata.modified_class if metadata is not None else found


def parameters(function: Any, bound: bool) -> list[inspect.Parameter]:
    found = list(inspect.signature(function).parameters.values())
    return found[1:] if bound and found and found[0].name in ("self", "cls") else found


def misfits(wanted: str, mine: list[inspect.Parameter]) -> Iterator[str]:
    """What a caller who goes by `wanted` (`a,b=,*,c=`) would stumble over."""
    by_name = {parameter.name: parameter for parameter in mine}
    positional = [p.name for p in mine if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_keyword, names = False, []
    for index, part in enumerate(part for part in wanted.split(",") if part):
        if part == "*":
            by_keyword = True
            continue
        name, optional = part.rstrip("="), part.endswith("=")
        names.append(name)
        parameter = by_name.get(name)
        if parameter is None or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            yield f"{name} is not an argument"
        elif optional and parameter.default is parameter.empty:
            yield f"{name} is required"
        elif not by_keyword and positional[index : index + 1] != [name]:
            yield f"{name} is not argument {index}"
    for parameter in mine:
        varies = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if not varies and parameter.default is parameter.empty and parameter.name not in names:
            yield f"{parameter.name} is required and unknown upstream"


def parts_that_misfit(use: Use) -> set[str]:
    """Arguments, methods and members of the record that this package does not have as upstream has them."""
    found = plain_class(load(use))
    missing: set[str] = set()
    for part in use.record:
        name, opened, rest = part.partition("(")
        if name and not hasattr(found, name):
            missing.add(name)
        elif opened:
            mine = parameters(getattr(found, name) if name else found, bound=bool(name) and inspect.isclass(found))
            missing |= {f"{name}: {fault}" if name else fault for fault in misfits(rest.removesuffix(")"), mine)}
    return missing


def test_the_list_is_the_one_that_was_counted() -> None:
    assert len(USES) == 288
    assert sum(use.uses for use in USES) == 949


@pytest.mark.parametrize("use", [use for use in USES if is_refused(use)], ids=str)
def test_a_name_that_is_left_out_says_what_to_use(use: Use) -> None:
    with pytest.raises(UnsupportedImport, match="is not part of this package"):
        load(use)


@pytest.mark.parametrize("use", [use for use in USES if not is_refused(use) and str(use) not in OTHERWISE], ids=str)
def test_a_name_takes_upstreams_arguments(use: Use) -> None:
    assert parts_that_misfit(use) == set()


@pytest.mark.parametrize("use", [use for use in USES if str(use) in OTHERWISE], ids=str)
def test_a_name_that_is_built_in_another_way_is_not_counted_without_need(use: Use) -> None:
    assert parts_that_misfit(use)


def test_nine_tenths_of_the_uses_work_whole() -> None:
    """A name that lacks one argument of upstream's does not count; the number here only rises."""
    whole = sum(use.uses for use in USES if not is_refused(use) and str(use) not in OTHERWISE)
    assert whole == 867
    assert whole / sum(use.uses for use in USES) >= 0.913


def test_a_misfit_is_noticed() -> None:
    def mine(a: int, b: int, *, c: int = 0, **others: Any) -> None: ...

    def faults(wanted: str) -> set[str]:
        return set(misfits(wanted, parameters(mine, bound=False)))

    assert faults("a,b,*,c=") == set()
    assert faults("b,a") == {"b is not argument 0", "a is not argument 1"}
    assert faults("a,b=") == {"b is required"}
    assert faults("a,b,others=") == {"others is not an argument"}
    assert faults("a") == {"b is required and unknown upstream"}
