# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The transaction of a weight update inside one process, wherever its weights go: begun, applied or dropped."""

import time
from typing import Any

from verl.errors import TransportError
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import ReceiverThread


class WeightTransaction:
    """Which version serves, whether it is whole, and the transfer in progress.

    A subclass begins (`_pending`, and `_thread` where it stages) and applies; `_stale` is set from the first weight
    touched until the last is in place.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        self._digest: str | None = None
        self._stale = False
        self._thread: ReceiverThread | None = None
        self._pending: tuple[int, dict[str, Any]] | None = None

    def abort(self, version: int, reason: str) -> None:
        """Forget what was staged of `version`; the weights that serve stay as they are."""
        if self._pending is not None and self._pending[0] == version:
            self._drop(reason)

    def state(self) -> dict[str, Any]:
        """version, stale, staged_version, digest, receiving, error."""
        thread = self._thread
        error = thread.error if thread is not None else None
        return {
            "version": self._version,
            "stale": self._stale,
            "staged_version": thread.staged_version if thread is not None else None,
            "digest": self._digest,
            "receiving": thread.running if thread is not None else False,
            "error": f"{type(error).__name__}: {error}" if error is not None else None,
        }

    def _settings_of(self, version: int) -> dict[str, Any]:
        """With what `version` was begun; an error where another one was, or none."""
        if self._pending is None or self._pending[0] != version:
            raise TransportError(
                "this version was not begun here", got=version, expected=self._pending and self._pending[0]
            )
        return self._pending[1]

    def _commit(self, version: int | None, digest: str | None) -> None:
        self._version, self._digest = version, digest
        self._thread = self._pending = None

    def _report(self, tensors: int, nbytes: int, started: float) -> dict[str, Any]:
        return {
            "version": self._version,
            "tensors": tensors,
            "bytes": nbytes,
            "digest": self._digest,
            "apply_s": time.monotonic() - started,
        }

    def _drop(self, reason: str) -> None:
        if self._thread is not None:
            self._thread.stop(reason)
        self._thread = self._pending = None
