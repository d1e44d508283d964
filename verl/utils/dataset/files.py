# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From what the user writes in `data.train_files` to one table of rows."""

import glob
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl.errors import DataError
from verl.utils.fs import copy_to_local, is_non_local

SUFFIXES = (".parquet", ".jsonl", ".json")


def resolve_data_files(
    data_files: str | Sequence[str] | None,
    *,
    where: str = "data files",
    cache_dir: str | None = None,
    use_shm: bool = False,
) -> list[str]:
    """Local paths of all files named: a file, a list, a glob pattern, a directory, `~`, or a remote path.

    Files of one pattern or directory come in sorted order; an entry that matches nothing is an error.
    """
    entries = [data_files] if isinstance(data_files, str | os.PathLike) else list(data_files or [])
    if not entries:
        raise DataError(
            "no file is named", where=where, remedy="give a file, a list of files, a pattern or a directory"
        )
    found: list[str] = []
    for entry in map(str, entries):
        if is_non_local(entry):
            found.append(copy_to_local(entry, cache_dir=cache_dir, use_shm=use_shm))
            continue
        matches = _expand(entry, where)
        found += [copy_to_local(match, use_shm=True) for match in matches] if use_shm else matches
    for path in found:
        if Path(path).suffix.lower() not in SUFFIXES:
            raise DataError(
                "unknown file type", where=path, got=Path(path).suffix or "no suffix", expected=", ".join(SUFFIXES)
            )
    return found


def read_rows(paths: Sequence[str]) -> pa.Table:
    """All rows of all files, in order; columns that a file lacks are null there."""
    tables = [_read_file(path) for path in paths]
    try:
        return pa.concat_tables(tables, promote_options="permissive") if len(tables) > 1 else tables[0]
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(
            f"the files have columns of different types ({error})",
            where=", ".join(paths),
            remedy="give the column one type in all files",
        ) from error


def key_of(data_files: Any, data_config: Any) -> str:
    """The key that these files were given by, for messages: `data.train_files`, `data.val_files`, or neither."""
    given = (key for key in ("train_files", "val_files") if data_config.get(key, None) == data_files)
    return f"data.{key}" if (key := next(given, None)) else "data files"


def require_column(names: Sequence[str], column: str, paths: Sequence[str], key: str, holds: str) -> None:
    """Raise where the files have no such column; `key` is the setting that names it, `holds` what is looked for."""
    if column not in names:
        raise DataError(
            f"no column {column!r}",
            where=", ".join(paths),
            got=list(names),
            remedy=f"set {key} to the column that holds {holds}",
        )


def _expand(entry: str, where: str) -> list[str]:
    path = os.path.expanduser(entry)
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        matches = sorted(str(item) for item in Path(path).iterdir() if item.suffix.lower() in SUFFIXES)
        what = f"the directory holds no file of {', '.join(SUFFIXES)}"
    else:
        matches = sorted(match for match in glob.glob(path, recursive=True) if os.path.isfile(match))
        what = "no such file, and as a pattern it matches none" if glob.has_magic(path) else "no such file or directory"
    if not matches:
        raise DataError(what, where=where, got=entry)
    return matches


def _read_file(path: str) -> pa.Table:
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".parquet":
            return pq.read_table(path)
        rows = _read_json(path, lines=suffix == ".jsonl")
        columns = dict.fromkeys(key for row in rows for key in row)
        return pa.table({key: [row.get(key) for row in rows] for key in columns})
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, AttributeError, TypeError) as error:
        raise DataError(f"the file cannot be read ({error})", where=path) from error


def _read_json(path: str, lines: bool) -> list[dict[str, Any]]:
    text = Path(path).read_text(encoding="utf-8")
    if not lines and text.lstrip().startswith("["):
        return json.loads(text)
    # A .json file that is no array holds one object a line, as the `datasets` library also reads it.
    # Not splitlines: that also cuts at line separators which JSON strings may hold.
    return [_read_line(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]


def _read_line(number: int, line: str) -> dict[str, Any]:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error
