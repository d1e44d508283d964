# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Write docs/public_paths.md: which of upstream's module paths exist here. `--check` only compares the list."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ROOT / "tests" / "data" / "upstream_modules.txt"
PAGE = ROOT / "docs" / "public_paths.md"
HEAD = """# Public paths

<!-- Written by tools/public_paths.py. -->

Module paths of upstream verl that import here, with what lies there. Names inside keep their arguments; what a module
leaves out raises `UnsupportedError` with the thing to use instead. Everything else in the package is internal and may
move.

| module | what it is |
|---|---|
"""


def page() -> str:
    """The whole page, from the list of upstream's modules and the docstrings of ours."""
    rows = []
    for name in NAMES.read_text().split():
        file = source(name)
        if file is not None:
            rows.append(f"| `{name}` | {summary(file)} |\n")
    return HEAD + "".join(rows)


def paths(text: str) -> set[str]:
    """The modules of a page."""
    return {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}


def source(name: str) -> Path | None:
    """The file of a module of this checkout."""
    base = ROOT.joinpath(*name.split("."))
    return next((file for file in (base.with_suffix(".py"), base / "__init__.py") if file.exists()), None)


def summary(file: Path) -> str:
    """The first sentence of the module's docstring."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def main() -> int:
    """Write, or compare."""
    if "--check" in sys.argv[1:]:
        # The sentences beside the names are the modules' own; only a path that comes or goes is news to a user.
        listed, there = paths(PAGE.read_text(encoding="utf-8")), paths(page())
        for name in sorted(listed ^ there):
            sys.stderr.write(f"{'gone' if name in listed else 'new'}: {name}; run tools/public_paths.py\n")
        return int(listed != there)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
