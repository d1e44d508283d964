# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What every source file must and must not have."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADER = ("# Copyright 2026 The verl maintainers", "# SPDX-License-Identifier: Apache-2.0")
# Words for work that was left undone; written apart, so that this file does not find itself.
UNDONE = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
MADE = {".venv", "build", "dist", "__pycache__", "_build"}


def files(*patterns: str) -> Iterator[Path]:
    for pattern in patterns:
        for path in ROOT.glob(pattern):
            if not MADE & set(path.relative_to(ROOT).parts):
                yield path


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def test_every_source_file_starts_with_the_two_header_lines() -> None:
    bare = []
    for path in files("verl/**/*.py", "tests/**/*.py", "tools/*.py", "examples/*", "docker/scripts/*", "docs/*.py"):
        if path.suffix == ".md" or path.is_dir() or not path.read_text().strip():
            continue
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#!")]
        if tuple(lines[:2]) != HEADER:
            bare.append(str(path.relative_to(ROOT)))
    assert not bare


def test_the_package_never_prints() -> None:
    calls = [
        where(path, node)
        for path in files("verl/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "breakpoint")
    ]
    assert not calls


def test_nothing_is_left_undone() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files("verl/**/*.py", "verl/**/*.yaml", "tests/**/*.py", "tools/*.py", "examples/*", "docker/**/*")
        if path.is_file() and path.suffix != ".tsv"
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if UNDONE.search(line)
    ]
    assert not found


def test_no_exception_is_caught_and_forgotten() -> None:
    """No bare `except:`, and no handler of a broad exception whose body is only `pass`."""
    forgotten = []
    for path in files("verl/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or (
                isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
            )
            silent = all(isinstance(item, ast.Pass) for item in node.body)
            if node.type is None or (broad and silent):
                forgotten.append(where(path, node))
    assert not forgotten


def test_nothing_refers_to_places_outside_the_repository() -> None:
    # Written apart for the same reason as above.
    word = "/work" + "/shared"
    found = [
        str(path.relative_to(ROOT))
        for path in files("verl/**/*", "tests/**/*", "docs/**/*", "examples/*", "tools/*", "*.md", "*.toml", "Makefile")
        if path.is_file() and word in path.read_text(errors="replace")
    ]
    assert not found


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in files("verl/**/*.py")
        if path.read_text().strip()
        and not ast.get_docstring(ast.parse(path.read_text()))
        and path.name != "__init__.py"
    ]
    assert not silent


def test_no_log_line_mixes_brace_placeholders_with_arguments() -> None:
    """`logger.info("{} rows", n)` is a traceback in the log instead of a line: the logging module fills in `%s`."""
    methods = {"debug", "info", "warning", "warn", "error", "exception", "critical", "log"}

    def mixed(source: str) -> list[ast.Call]:
        return [
            node
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in methods
            and "log" in ast.unparse(node.func.value).lower()
            and any(
                isinstance(text, ast.Constant) and isinstance(text.value, str) and re.search(r"\{\w*\}", text.value)
                for text in node.args[:-1]
            )
        ]

    assert len(mixed('logger.warning("{} rows of {}", 1, 2)\nself._log.info("{name}", 3)\nlogger.info("{}")')) == 2
    assert not [where(path, node) for path in files("verl/**/*.py") for node in mixed(path.read_text())]
