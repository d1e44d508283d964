# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""No coroutine blocks its event loop: neither itself nor through a function that it calls.

Functions handed to `asyncio.to_thread` are mentioned, not called, and may block.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import verl

PACKAGE = Path(verl.__file__).parent

# Dotted calls that wait without giving the loop back.
BLOCKING_CALLS = {"ray.get", "ray.wait", "time.sleep", "asyncio.run", "subprocess.run", "subprocess.check_output"}
# Methods that wait when they are not awaited (sockets, queues of threads).
BLOCKING_METHODS = {"recv", "recv_multipart", "recv_pyobj", "recv_json", "recv_string", "result_sync"}


@dataclass
class Function:
    """One function: what it calls, and the blocking calls in its own body."""

    where: str
    is_async: bool
    calls: set[str] = field(default_factory=set)
    blocking: list[str] = field(default_factory=list)


def dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return None


class Collector(ast.NodeVisitor):
    """All functions of one module under `module:Class.name`, with the names they call, resolved where certain."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.module = module
        self.functions: dict[str, Function] = {}
        self.scope: list[str] = []
        self.current: list[Function] = []
        self.imports: dict[str, str] = {}
        self.awaited: set[ast.Call] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for name in node.names:
                    self.imports[name.asname or name.name] = f"{node.module}:{name.name}"
            elif isinstance(node, ast.Import):
                for name in node.names:
                    self.imports[name.asname or name.name.split(".")[0]] = (name.asname and name.name) or name.name
            elif isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
                self.awaited.add(node.value)
        self.visit(tree)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.append(node.name)
        self.generic_visit(node)
        self.scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        name = f"{self.module}:{'.'.join([*self.scope, node.name])}"
        function = Function(f"{self.module}.{node.name}:{node.lineno}", isinstance(node, ast.AsyncFunctionDef))
        self.functions[name] = function
        self.current.append(function)
        self.scope.append(node.name)
        for child in node.body:
            self.visit(child)
        self.scope.pop()
        self.current.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A lambda runs where it is called, which is not known here."""

    def visit_Call(self, node: ast.Call) -> None:
        if self.current:
            self._note(node)
        self.generic_visit(node)

    def _note(self, node: ast.Call) -> None:
        function, name = self.current[-1], dotted(node.func)
        if name in BLOCKING_CALLS:
            function.blocking.append(f"{name} (line {node.lineno})")
        elif isinstance(node.func, ast.Attribute) and node.func.attr in BLOCKING_METHODS and node not in self.awaited:
            function.blocking.append(f".{node.func.attr} (line {node.lineno})")
        if name is None:
            return
        head, _, rest = name.partition(".")
        if head in ("self", "cls") and rest and "." not in rest:
            # The class is the last scope entry that is not the function itself.
            owner = [part for part in self.scope[:-1] if part[0].isupper() or part.startswith("_")]
            if owner:
                function.calls.add(f"{self.module}:{owner[-1]}.{rest}")
        elif not rest:
            function.calls.add(self.imports.get(head, f"{self.module}:{head}"))
            function.calls.add(f"{self.module}:{'.'.join([*self.scope, head])}")


def collect(root: Path) -> dict[str, Function]:
    functions: dict[str, Function] = {}
    for path in sorted(root.rglob("*.py")):
        module = ".".join([root.name, *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__")
        functions |= Collector(module, ast.parse(path.read_text())).functions
    return functions


def blocking_chains(functions: dict[str, Function]) -> Iterator[str]:
    """Every way from a coroutine to a blocking call, one per coroutine and call."""
    for name, function in functions.items():
        if not function.is_async:
            continue
        seen, todo = {name}, [(function, function.where)]
        while todo:
            current, chain = todo.pop()
            for call in current.blocking:
                yield f"{chain} → {call}"
            for callee in current.calls:
                target = functions.get(callee)
                if target is not None and not target.is_async and callee not in seen:
                    seen.add(callee)
                    todo.append((target, f"{chain} → {target.where}"))


def test_no_coroutine_of_the_package_blocks_its_loop() -> None:
    functions = collect(PACKAGE)
    assert sum(function.is_async for function in functions.values()) > 20
    assert not list(blocking_chains(functions))


def test_the_check_itself_finds_direct_and_indirect_blocking(tmp_path: Path) -> None:
    package = tmp_path / "sample"
    package.mkdir()
    (package / "a.py").write_text(
        "import asyncio, ray\n"
        "from sample.b import helper\n"
        "async def direct(ref):\n    return ray.get(ref)\n"
        "async def indirect():\n    helper()\n"
        "class C:\n"
        "    def _wait(self):\n        ray.wait([])\n"
        "    async def method(self):\n        self._wait()\n"
        "    async def threaded(self):\n        await asyncio.to_thread(self._wait)\n"
        "async def socket(sock):\n    sock.recv()\n"
        "async def awaited(sock):\n    await sock.recv()\n"
    )
    (package / "b.py").write_text("import time\ndef helper():\n    time.sleep(1)\n")
    found = list(blocking_chains(collect(package)))
    assert len(found) == 4
    assert [any(word in chain for chain in found) for word in ("direct", "indirect", "method", "socket")] == [True] * 4
