# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Write docs/public_paths.md: which of upstream's paths exist here, moved or were left out. `--check` compares it."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from verl.compat import ROADS, is_sentence  # noqa: E402  the checkout's own table

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

MOVED = """
## Moved

Old paths without a file of their own: the name at the new place is what an import of the old one gives. A module warns
once.

| old path | new path |
|---|---|
"""
LEFT_OUT = """
## Left out

An import of these, or of anything below them, is an `ImportError` (an `UnsupportedImport`) that says what stands here.
`hasattr` of the module above is false, and `module.name` an `AttributeError` with the same sentence.

| old path | instead |
|---|---|
"""


def page() -> str:
    """The whole page, from the list of upstream's modules, the docstrings of ours, and the table of `verl.compat`."""
    rows = []
    for name in NAMES.read_text().split():
        file = source(name)
        if file is not None:
            rows.append(f"| `{name}` | {summary(file)} |\n")
    moved = [f"| `{old}` | `{road}` |\n" for old, road in sorted(ROADS.items()) if not is_sentence(road)]
    left_out = [f"| `{old}` | {marked(road)}. |\n" for old, road in sorted(ROADS.items()) if is_sentence(road)]
    return "".join([HEAD, *rows, MOVED, *moved, LEFT_OUT, *left_out])


def marked(sentence: str) -> str:
    """The sentence with names and settings in code type."""
    return re.sub(r"(?<![\w`])((?:\w+\.)+\w+(?:=\w+)?|\w+_\w+(?:=\w+)?|\w+=\w+)", r"`\1`", sentence)


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
