# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`Tracking`: one call a step, every backend asked for, and always a metrics file in the run's directory."""

import functools
import logging
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl.errors import ConfigError
from verl.tracking.base import BACKENDS, Backend, Guarded, RunInfo
from verl.tracking.files import METRICS_FILE, JsonLines, file_is_asked_elsewhere
from verl.utils.json_utils import to_jsonable

logger = logging.getLogger(__name__)

# Old names of backends.
ALIASES = {"tracking": "wandb", "jsonl": "file"}

# The backends open in this process, so that a generations logger finds them by name.
_open_backends: "weakref.WeakSet[Guarded]" = weakref.WeakSet()


def _start(name: str, run: RunInfo) -> Backend:
    return BACKENDS.get(name)(run)


class Tracking:
    """Fan-out of metrics to the backends named in `trainer.logger`.

    A failing backend is said once and never stops the run; an unknown name is a `ConfigError` at the start.
    Where `config` has `trainer.default_local_dir`, `metrics.jsonl` there is written whatever was asked for.
    `resume_step` is the step of the checkpoint that the run continues from: later records are dropped.
    """

    supported_backend = sorted([*BACKENDS, *ALIASES])

    def __init__(
        self,
        project_name: str,
        experiment_name: str,
        default_backend: str | Sequence[str] = "console",
        config: Any = None,
        *,
        resume_step: int | None = None,
    ) -> None:
        plain = _plain_config(config)
        run = RunInfo(project_name, experiment_name, _local_dir(plain), plain, resume_step)
        self._backends = {
            name: Guarded(name, functools.partial(_start, name, run)) for name in _wanted(default_backend, run)
        }
        if run.local_dir is not None:
            path = run.local_dir / METRICS_FILE
            self._backends[METRICS_FILE] = Guarded(METRICS_FILE, lambda: JsonLines(run, path))
        _open_backends.update(self._backends.values())
        # Runs at garbage collection and at interpreter exit; `close` is the sure way.
        self._finalizer = weakref.finalize(self, _close_all, list(self._backends.values()))

    @property
    def logger(self) -> dict[str, Guarded]:
        """The backends by name."""
        return dict(self._backends)

    def log(self, data: Mapping[str, Any], step: int, backend: str | Sequence[str] | None = None) -> None:
        """Log one step's metrics to all backends, or to those named."""
        wanted = None if backend is None else {backend} if isinstance(backend, str) else set(backend)
        for name, guarded in self._backends.items():
            if wanted is None or name in wanted:
                guarded.call("log", data, step)

    def log_generations(self, samples: Sequence[Sequence[Any]], step: int) -> None:
        """Log validation samples, each (input, output, score), to the backends that show tables."""
        for guarded in self._backends.values():
            guarded.call("log_generations", samples, step)

    def failures(self) -> dict[str, int]:
        """Failed calls by backend, for the summary; empty when all went well."""
        return {name: guarded.failures for name, guarded in self._backends.items() if guarded.failures}

    def close(self) -> None:
        """Flush and close every backend; twice is harmless."""
        self._finalizer()

    finish = close

    def __enter__(self) -> "Tracking":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def open_backends() -> list[Guarded]:
    """The active backends of this process."""
    return [guarded for guarded in _open_backends if guarded.active]


def _wanted(default_backend: str | Sequence[str], run: RunInfo) -> list[str]:
    asked = [default_backend] if isinstance(default_backend, str) else list(default_backend)
    names = []
    for name in asked:
        known = ALIASES.get(name, name)
        if known not in BACKENDS:
            raise ConfigError(
                "unknown tracking backend", where="trainer.logger", got=name, expected=f"one of {', '.join(BACKENDS)}"
            )
        if name == "tracking":
            logger.warning("trainer.logger: 'tracking' is an old name of 'wandb'")
        # The run's own metrics file is always written; "file" adds another only where the environment names it.
        if known == "file" and run.local_dir is not None and not file_is_asked_elsewhere():
            continue
        if known not in names:
            names.append(known)
    return names


def _plain_config(config: Any) -> dict[str, Any]:
    # A typed RunConfig keeps the resolved mapping it was built from.
    raw = getattr(config, "raw", None)
    if OmegaConf.is_config(config):
        raw = OmegaConf.to_container(config, resolve=True)
    plain = to_jsonable(raw if raw is not None else config or {})
    return plain if isinstance(plain, dict) else {}


def _local_dir(config: Mapping[str, Any]) -> Path | None:
    directory = (config.get("trainer") or {}).get("default_local_dir")
    return Path(directory).expanduser() if directory else None


def _close_all(backends: list[Guarded]) -> None:
    for guarded in backends:
        guarded.close()
