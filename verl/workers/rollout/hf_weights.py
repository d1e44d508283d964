# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Weights of a transformers model that serves: staged on a thread, put in between two batches."""

import os
import time
from typing import Any

from torch import nn

from verl.errors import TransportError
from verl.launch_info import LaunchInfo
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import (
    BucketedWeightReceiver,
    ReceiverThread,
    weight_socket_handle,
)
from verl.workers.rollout.vllm_rollout.weight_loading import load_into_module


class ModuleWeights:
    """The same five calls as the extension of vLLM's workers, on a module in this process."""

    def __init__(self, module: nn.Module, replica_rank: int) -> None:
        self._module = module
        self._replica_rank = replica_rank
        self._version: int | None = None
        self._digest: str | None = None
        self._stale = False
        self._begun: tuple[int, float] | None = None
        self._thread: ReceiverThread | None = None

    def verl_begin_weights(
        self, version: int, use_shm: bool = True, deadline_s: float = 120.0, **adapter: Any
    ) -> dict[str, Any]:
        """Expect `version`; a thread stages it in host memory."""
        self._drop(f"version {version} began")
        handle = weight_socket_handle(LaunchInfo.from_env(), self._replica_rank, 0)
        device = next(self._module.parameters()).device
        self._begun = (version, deadline_s)
        self._thread = ReceiverThread(
            lambda stopped: BucketedWeightReceiver(
                handle, device, True, deadline_s, version=version, rank=0, ipc="none", stopped=stopped
            ),
            f"weights-v{version}",
        )
        return {"pid": os.getpid(), "local_rank": 0, "handle": handle, "stages": True}

    def verl_apply_weights(self, version: int) -> dict[str, Any]:
        """Copy what was staged into the module; stale from the first tensor to the last."""
        if self._begun is None or self._thread is None or self._begun[0] != version:
            raise TransportError("this version was not begun here", got=version, expected=self._begun)
        started = time.monotonic()
        staged = self._thread.result(self._begun[1])
        self._stale = True
        load_into_module(self._module, staged.tensors.items())
        self._stale = False
        self._version, self._digest = version, staged.digest
        self._thread = self._begun = None
        return {
            "version": version,
            "tensors": len(staged.tensors),
            "bytes": staged.nbytes,
            "digest": staged.digest,
            "apply_s": time.monotonic() - started,
        }

    def verl_abort_weights(self, version: int, reason: str) -> None:
        """Forget the transfer of `version`."""
        if self._begun is not None and self._begun[0] == version:
            self._drop(reason)

    def verl_weight_state(self) -> dict[str, Any]:
        """As the extension of vLLM's workers."""
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

    def _drop(self, reason: str) -> None:
        if self._thread is not None:
            self._thread.stop(reason)
        self._thread = self._begun = None
