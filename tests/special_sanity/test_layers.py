# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The law of imports: every module has a floor and imports only from its own room and from lower floors."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import verl

sys.path.insert(0, str(Path(__file__).parent))
from floors import FORBIDDEN_BELOW_F4, FORBIDDEN_IN_ROOM, LATE, NEIGHBOURS, OLD_HOMES, place

ROOT = Path(verl.__file__).parent


@dataclass(frozen=True)
class Imported:
    """One import: the full module or attribute path, its line, and the function around it."""

    name: str
    line: int
    function: str | None


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("verl", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(tree: ast.AST, function: str | None = None) -> Iterator[Imported]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (Imported(alias.name, node.lineno, function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (Imported(f"{node.module}.{alias.name}", node.lineno, function) for alias in node.names)
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield from imports(node, inside)


def target(name: str) -> str | None:
    """The module of ours that an import means, if it means one."""
    while name.startswith("verl"):
        if name in MODULES:
            return name
        name = name.rpartition(".")[0]
    return None


def parsed(module: str) -> list[Imported]:
    return list(imports(ast.parse(MODULES[module].read_text(encoding="utf-8"))))


def faults(module: str) -> Iterator[str]:
    home = place(module)
    if home is None:
        yield f"{module} has no floor: add it to tests/special_sanity/floors.py"
        return
    for item in parsed(module):
        where = f"{MODULES[module]}:{item.line}: {module} (F{home.floor} {home.room}) imports {item.name}"
        answers_old_path = item.function == "__getattr__" and module in OLD_HOMES
        if item.function is not None and not answers_old_path and (module, item.function) not in LATE:
            yield f"{where} inside {item.function}; use optional_import, or move the code to its floor"
        top = item.name.partition(".")[0]
        if top in FORBIDDEN_IN_ROOM.get(home.room, ()) or (home.floor < 4 and top in FORBIDDEN_BELOW_F4):
            yield f"{where}, which is forbidden there"
        other = target(item.name)
        if other is not None and item.function != "__getattr__":
            yield from (f"{where}{fault}" for fault in _upward(module, other))


def _upward(module: str, other: str) -> Iterator[str]:
    home, there = place(module), place(other)
    if home is None or there is None or module == other:
        return
    if there.facade and not home.facade:
        yield f", a façade of {other}"
    same_floor = home.floor == there.floor
    neighbours = home.room == there.room or home.facade or (home.room, there.room) in NEIGHBOURS
    allowed = there.floor < home.floor or (same_floor and neighbours)
    # Every module of a package imports the package; its __init__ is empty or of the same room.
    if not allowed and not module.startswith(other + "."):
        yield f" (F{there.floor} {there.room})"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_its_room_and_below(module: str) -> None:
    assert list(faults(module)) == []


def test_every_late_import_is_still_there() -> None:
    there = {(module, item.function) for module in MODULES for item in parsed(module)}
    assert set(LATE) <= there


LIGHT = (
    "verl",
    "verl.config",
    "verl.config.front_door",
    "verl.errors",
    "verl.experimental.fully_async_policy.message_queue",
    "verl.experimental.fully_async_policy.staleness",
    "verl.launch_info",
    "verl.platform",
    "verl.single_controller.ray.bootstrap",
    "verl.tracking",
    "verl.trainer.constants_ppo",
    "verl.trainer.job",
    "verl.waits",
)


@pytest.mark.parametrize("module", LIGHT)
def test_a_control_process_loads_no_torch(module: str) -> None:
    code = f"import sys, {module}; print({{'torch', 'transformers', 'vllm'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_law_catches_an_offender(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offender = tmp_path / "offender.py"
    offender.write_text(
        "import ray\n"
        "from verl.trainer.ppo import steps\n"
        "from verl.utils.device import get_device_name\n"
        "def late():\n    import json\n"
    )
    monkeypatch.setitem(MODULES, "verl.transport.offender", offender)
    found = "\n".join(faults("verl.transport.offender"))
    assert "imports ray, which is forbidden there" in found
    assert "imports verl.trainer.ppo.steps (F8 loops)" in found
    assert "a façade of verl.utils.device" in found
    assert "imports json inside late" in found
    monkeypatch.setitem(MODULES, "verl.nowhere", offender)
    assert list(faults("verl.nowhere")) == ["verl.nowhere has no floor: add it to tests/special_sanity/floors.py"]
