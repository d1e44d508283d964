# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Weights of a transformers model that serves: staged on a thread, put in between two batches."""

import os
import time
from typing import Any

from torch import nn

from verl.launch_info import LaunchInfo
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import (
    BucketedWeightReceiver,
    ReceiverThread,
    weight_socket_handle,
)
from verl.workers.rollout.vllm_rollout.weight_loading import load_into_module
from verl.workers.rollout.weight_transaction import WeightTransaction


class ModuleWeights(WeightTransaction):
    """The calls of the extension of vLLM's workers, on a module in this process."""

    def __init__(self, module: nn.Module, replica_rank: int) -> None:
        super().__init__()
        self._module = module
        self._replica_rank = replica_rank

    def verl_begin_weights(
        self, version: int, use_shm: bool = True, deadline_s: float = 120.0, **adapter: Any
    ) -> dict[str, Any]:
        """Expect `version`; a thread stages it in host memory."""
        self._drop(f"version {version} began")
        handle = weight_socket_handle(LaunchInfo.from_env(), self._replica_rank, 0)
        device = next(self._module.parameters()).device
        self._pending = (version, {"deadline_s": deadline_s})
        self._thread = ReceiverThread(
            lambda stopped: BucketedWeightReceiver(
                handle, device, True, deadline_s, version=version, rank=0, ipc="none", stopped=stopped
            ),
            f"weights-v{version}",
        )
        return {"pid": os.getpid(), "local_rank": 0, "handle": handle, "stages": True}

    def verl_apply_weights(self, version: int) -> dict[str, Any]:
        """Copy what was staged into the module; stale from the first tensor to the last."""
        settings = self._settings_of(version)
        started = time.monotonic()
        receiving: Any = self._thread
        staged = receiving.result(settings["deadline_s"])
        self._stale = True
        load_into_module(self._module, staged.tensors.items())
        self._stale = False
        self._commit(version, staged.digest)
        return self._report(len(staged.tensors), staged.nbytes, started)

    verl_abort_weights = WeightTransaction.abort
    verl_weight_state = WeightTransaction.state
