# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`DistProfiler`: torch.profiler on the ranks that a configuration names, one trace file a rank."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from verl.errors import UnsupportedError
from verl.platform import current_platform
from verl.utils.profiler.annotations import mark_range

__all__ = ["DistProfiler"]

F = TypeVar("F", bound=Callable[..., Any])


class DistProfiler:
    """The profiler of one rank; does nothing unless `config.enable` is true and `config` names the rank.

    `config`: a mapping with `enable`, `tool` ("torch"), `all_ranks`, `ranks`, `save_path`; `tool_config`: a mapping
    with `discrete` (a trace for each annotated call, instead of one from `start` to `stop`) and `contents` (of
    "cpu", "cuda", "memory", "shapes", "stack"). Traces are Chrome traces below `save_path`.
    """

    def __init__(self, rank: int, config: Any = None, tool_config: Any = None, **kwargs: Any) -> None:
        self.rank = rank
        self.config = config if config is not None else {}
        self.tool_config = tool_config if tool_config is not None else {}
        self._running: Any = None
        self._this_step = False
        self._label = ""
        self._count = 0
        tool = self.config.get("tool")
        if self.check_enable() and tool != "torch":
            raise UnsupportedError(
                "this profiler is started around the job, not by it",
                where="global_profiler.tool",
                got=tool,
                expected="torch",
                remedy=f"run the command under {current_platform().profiler_tool}; its ranges carry our names",
            )

    def check_enable(self) -> bool:
        """Whether the configuration asks for profiling at all."""
        return bool(self.config.get("enable", False))

    def check_this_rank(self) -> bool:
        """Whether this rank is among those to profile."""
        return bool(self.config.get("all_ranks", False)) or self.rank in (self.config.get("ranks") or ())

    def check_this_step(self) -> bool:
        """Whether `start` was called and `stop` not yet."""
        return self._this_step

    def is_discrete_mode(self) -> bool:
        """Whether each annotated call has a trace of its own."""
        return bool(self.tool_config.get("discrete", False))

    def start(self, **kwargs: Any) -> None:
        """Begin; `role` and `profile_step` become part of the files' names."""
        if not (self.check_enable() and self.check_this_rank()):
            return
        self._this_step = True
        parts = [kwargs.get("role"), kwargs.get("profile_step")]
        self._label = "_".join(str(part) for part in parts if part is not None) or "trace"
        if not self.is_discrete_mode():
            self._running = self._new()
            self._running.start()

    def stop(self) -> None:
        """End, and write the trace."""
        self._this_step = False
        if self._running is not None:
            self._running.stop()
            self._write(self._running, self._label)
            self._running = None

    @classmethod
    def annotate(
        cls,
        message: str | None = None,
        color: str | None = None,
        domain: str | None = None,
        category: str | None = None,
        **kwargs_outer: Any,
    ) -> Callable[[F], F]:
        """Decorator for a method: each call is a range, named `message`, `role`, or after the method.

        In discrete mode of the object's `profiler`, each call also has a trace of its own.
        """

        def decorate(function: F) -> F:
            name = message or kwargs_outer.get("role") or function.__name__

            @functools.wraps(function)
            def inner(self: Any, *args: Any, **kwargs: Any) -> Any:
                profiler: Any = getattr(self, "profiler", None)
                alone = isinstance(profiler, cls) and profiler.check_this_step() and profiler.is_discrete_mode()
                if not alone:
                    with mark_range(name, color=color, domain=domain, category=category):
                        return function(self, *args, **kwargs)
                with profiler._recording(name):
                    return function(self, *args, **kwargs)

            return inner  # type: ignore[return-value]

        return decorate

    @contextmanager
    def _recording(self, name: str) -> Iterator[None]:
        with self._new() as running, mark_range(name):
            yield
        self._count += 1
        self._write(running, f"{self._label}_{name}_{self._count}")

    def _new(self) -> Any:
        contents = set(self.tool_config.get("contents") or ("cpu", "cuda"))
        activities = [torch.profiler.ProfilerActivity.CPU]
        if "cuda" in contents and current_platform().device_type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        return torch.profiler.profile(
            activities=activities,
            profile_memory="memory" in contents,
            record_shapes="shapes" in contents,
            with_stack="stack" in contents,
        )

    def _write(self, running: Any, label: str) -> None:
        folder = Path(self.config.get("save_path") or "outputs/profile")
        folder.mkdir(parents=True, exist_ok=True)
        running.export_chrome_trace(str(folder / f"{label}_rank{self.rank}.json.gz"))
