# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Small faults put into a production module one at a time: wrong sign, operator, comparison, constant, mask, detach.

`python tests/golden/mutate.py [module ...]` lists the faults that no check notices.
"""

import ast
import copy
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

_SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Gt: ast.LtE,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_RENAMES = {
    "minimum": "maximum",
    "maximum": "minimum",
    "amax": "amin",
    "amin": "amax",
    "masked_mean": "masked_sum",
    "masked_sum": "masked_mean",
    "expm1": "exp",
}
# A method call that is replaced by the thing it is called on.
_DROPPED_CALLS = {"detach", "exp", "log", "abs", "square", "sqrt", "clamp", "sign", "cumsum", "flip"}
# A function call that is replaced by its second argument: the mask is forgotten.
_DROPPED_MASKS = {"zero_outside"}


def mutants(source: str) -> Iterator[tuple[str, ast.Module]]:
    """(description, mutated tree) of every fault that can be put into the source.

    It is one tree, and each fault is taken out again when the next is asked for.
    """
    tree = ast.parse(source)
    lines = source.splitlines()
    # The innermost first: what is put back are copies of the parts, which nobody visits again.
    for node in reversed(list(_formulas(tree))):
        for label, change in list(_changes(node)):
            description = f"{label}: {ast.unparse(node)} in {lines[node.lineno - 1].strip()}"
            whole = copy.deepcopy(node)
            change(node)
            yield description, tree
            _become(node, whole)


def load(name: str, tree: ast.Module) -> types.ModuleType:
    """The mutated module, executed apart: nothing is registered, the real module stays."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [d for d in node.decorator_list if "register" not in ast.unparse(d)]
    module = types.ModuleType(name)
    module.__file__ = importlib.import_module(name).__file__
    # Dataclasses look their module up by name.
    sys.modules[name + "__mutant"] = module
    module.__name__ = name + "__mutant"
    exec(compile(tree, module.__file__ or name, "exec"), module.__dict__)
    return module


def source_of(name: str) -> str:
    """The text of a module, which need not have been imported."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text()


def survivors(name: str, checks: list[Callable[[types.ModuleType], None]]) -> list[str]:
    """The faults in a module that every check lets through."""
    return [label for label, tree in mutants(source_of(name)) if not _noticed(name, tree, checks)]


def _noticed(name: str, tree: ast.Module, checks: list[Callable[[types.ModuleType], None]]) -> bool:
    try:
        module = load(name, tree)
        for check in checks:
            check(module)
    except Exception:
        # A fault that crashes is noticed, as one that gives a wrong number is.
        return True
    return False


def _formulas(tree: ast.Module) -> Iterator[ast.expr]:
    """Expressions inside functions, without annotations, decorators, docstrings and the texts of errors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                yield from _expressions(statement)


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Raise | ast.FunctionDef) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        return
    if isinstance(node, ast.expr):
        yield node
    for name, child in ast.iter_fields(node):
        if name == "annotation":
            continue
        for item in child if isinstance(child, list) else [child]:
            if isinstance(item, ast.AST):
                yield from _expressions(item)


def _changes(node: ast.expr) -> Iterator[tuple[str, Callable[[ast.expr], None]]]:
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPS:
        yield type(node.op).__name__, lambda target: setattr(target, "op", _SWAPS[type(target.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        yield type(node.ops[0]).__name__, lambda target: setattr(target, "ops", [_SWAPS[type(target.ops[0])]()])
    if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield "unary", lambda target: _become(target, target.operand)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "flag", lambda target: setattr(target, "value", not target.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "constant", lambda target: setattr(target, "value", target.value + 1)
    if isinstance(node, ast.IfExp):
        yield "branch", lambda target: target.__dict__.update(body=target.orelse, orelse=target.body)
    if isinstance(node, ast.Call):
        yield from _call_changes(node)


def _call_changes(node: ast.Call) -> Iterator[tuple[str, Callable[[ast.expr], None]]]:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in _RENAMES:
        field = "attr" if isinstance(function, ast.Attribute) else "id"
        yield name, lambda target: setattr(target.func, field, _RENAMES[name])
    if name in _DROPPED_CALLS and isinstance(function, ast.Attribute):
        yield f"without {name}", lambda target: _become(target, target.func.value)
    if name in _DROPPED_MASKS and len(node.args) == 2:
        yield "without mask", lambda target: _become(target, target.args[1])


def _become(target: ast.expr, other: ast.expr) -> None:
    target.__class__ = other.__class__
    target.__dict__ = dict(other.__dict__)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from checks import CHECKS

    for chosen in sys.argv[1:] or CHECKS:
        left = survivors(chosen, CHECKS[chosen])
        total = sum(1 for _ in mutants(source_of(chosen)))
        sys.stdout.write(f"{chosen}: {total} faults, {len(left)} unnoticed\n")
        for line in left:
            sys.stdout.write(f"    {line}\n")
