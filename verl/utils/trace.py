# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who did what when: each process appends its spans to a JSONL file of its own; the report draws them as a timeline.

A line is `{"name", "role", "pid", "start_s", "end_s", "args"}`, times in unix seconds; an event has start = end.
"""

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl.utils.json_utils import dumps

logger = logging.getLogger(__name__)


class _TraceFile:
    """Lines go out in one append each, without a buffer: a killed process loses nothing and tears nothing."""

    def __init__(self, directory: Path, role: str) -> None:
        self.directory = directory
        self.role = role
        self.pid = -1
        self.fd = -1

    def write(self, record: dict[str, Any]) -> None:
        if self.pid != os.getpid():
            self._open()
        os.write(self.fd, (dumps(record) + "\n").encode("utf-8", errors="backslashreplace"))

    def _open(self) -> None:
        # A forked child gets a file of its own; the parent's descriptor stays the parent's.
        self.directory.mkdir(parents=True, exist_ok=True)
        self.pid = os.getpid()
        path = self.directory / f"{self.role}-{self.pid}.jsonl"
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


_file: _TraceFile | None = None


def set_up_trace(directory: str | Path, role: str) -> None:
    """From now on spans of this process go to `<directory>/<role>-<pid>.jsonl`; before, they go nowhere."""
    global _file
    _file = _TraceFile(Path(directory), role)


def stop_trace() -> None:
    """Spans go nowhere again."""
    global _file
    if _file is not None and _file.pid == os.getpid():
        os.close(_file.fd)
    _file = None


@contextmanager
def span(name: str, **args: Any) -> Iterator[dict[str, Any]]:
    """Record the time of the block; the yielded dict may be given more `args` before the block ends.

    A block that raises is recorded with `error`, the exception's type.
    """
    if _file is None:
        yield args
        return
    start_s = time.time()
    # Wall time places a span among processes; its length comes from the clock that never jumps.
    start_monotonic_s = time.monotonic()
    try:
        yield args
    except BaseException as error:
        args["error"] = type(error).__name__
        raise
    finally:
        record_span(name, start_s, start_s + time.monotonic() - start_monotonic_s, **args)


def record_span(name: str, start_s: float, end_s: float, **args: Any) -> None:
    """Record a span whose times (unix seconds) are already known."""
    global _file
    if _file is None:
        return
    record = {"name": name, "role": _file.role, "pid": os.getpid(), "start_s": start_s, "end_s": end_s, "args": args}
    try:
        _file.write(record)
    except OSError as error:
        logger.warning("tracing stops here: %s cannot be written (%s)", _file.directory, error)
        _file = None


def event(name: str, **args: Any) -> None:
    """Record a moment."""
    now_s = time.time()
    record_span(name, now_s, now_s, **args)


def read_trace(directory: str | Path) -> list[dict[str, Any]]:
    """All spans below `directory`, by start; a line cut off by a full disk is left out."""
    spans = []
    for path in sorted(Path(directory).glob("*.jsonl")):
        # Not splitlines: an argument may hold other line separators, which JSON leaves as they are.
        for line in filter(None, path.read_text(encoding="utf-8").split("\n")):
            try:
                spans.append(json.loads(line))
            except json.JSONDecodeError:
                logger.warning("%s has a broken line, left out", path)
    return sorted(spans, key=lambda item: item["start_s"])
