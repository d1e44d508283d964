# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Our side of vLLM's worker processes: the extension class that receives weights, and small helpers of the server."""

import ctypes
import json
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, get_args

import torch

from verl.errors import ConfigError, UnsupportedError
from verl.utils.import_utils import optional_import
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import DEFAULT_DEADLINE_S
from verl.workers.rollout.vllm_rollout.weight_loading import VLLM_LORA_INT_ID, VLLM_LORA_NAME, WorkerWeights

__all__ = [
    "VLLM_ASCEND_REQUIRED_ENV_VARS",
    "VLLM_LORA_INT_ID",
    "VLLM_LORA_NAME",
    "VLLM_LORA_PATH",
    "SuppressSignalInThread",
    "build_cli_args_from_config",
    "extract_prompt_logprobs",
    "get_vllm_max_lora_rank",
    "monkey_patch_compute_logits",
    "set_death_signal",
    "vLLMColocateWorkerExtension",
    "vLLMOmniColocateWorkerExtension",
]

VLLM_LORA_PATH = "simon_lora_path"
"""Stands in requests for the adapter that is already loaded; vLLM wants a path, and never opens this one."""
VLLM_ASCEND_REQUIRED_ENV_VARS = {"VLLM_ALL2ALL_BACKEND": "flashinfer_all2allv", "VLLM_ASCEND_ENABLE_NZ": "0"}

_PR_SET_PDEATHSIG = 1
_MAX_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def set_death_signal() -> None:
    """Have the kernel kill this process when its parent dies, so that a killed server leaves no engine behind."""
    libc = ctypes.CDLL("libc.so.6", use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() == 1:
        # The parent died between our start and the call above; its signal will never come.
        os.kill(os.getpid(), signal.SIGKILL)


def get_vllm_max_lora_rank(lora_rank: int) -> int:
    """The smallest adapter rank that vLLM allows and that holds `lora_rank`."""
    if lora_rank <= 0:
        raise ConfigError(
            "the adapter rank must be positive",
            where="actor_rollout_ref.model.lora_rank",
            got=lora_rank,
            expected="> 0",
        )
    for allowed in _allowed_lora_ranks():
        if lora_rank <= allowed:
            return allowed
    raise ConfigError(
        "vLLM has no adapter rank that large",
        where="actor_rollout_ref.model.lora_rank",
        got=lora_rank,
        expected=f"<= {allowed}",
    )


def _allowed_lora_ranks() -> tuple[int, ...]:
    try:
        lora = optional_import("vllm.config.lora", "rollout.name=vllm")
    except UnsupportedError:
        return _MAX_LORA_RANKS
    return tuple(sorted(get_args(lora.MaxLoRARanks))) or _MAX_LORA_RANKS


def monkey_patch_compute_logits(model: Any, vocab_size: int) -> None:
    """Make tokens beyond the tokenizer's `vocab_size` impossible: a padded embedding has rows that mean nothing."""
    original: Callable[..., torch.Tensor | None] = model.compute_logits

    def compute_logits(*args: Any, **kwargs: Any) -> torch.Tensor | None:
        logits_KV = original(*args, **kwargs)
        if logits_KV is not None:
            logits_KV[..., vocab_size:] = float("-inf")
        return logits_KV

    model.compute_logits = compute_logits


class vLLMColocateWorkerExtension:
    """Mixed into vLLM's worker class by `worker_extension_cls`; the server calls it through `collective_rpc`.

    No name here may exist on vLLM's own worker.
    """

    # vLLM's worker has it.
    get_model: Callable[[], Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> "vLLMColocateWorkerExtension":
        set_death_signal()
        return super().__new__(cls)

    @property
    def _verl_weights(self) -> WorkerWeights:
        # vLLM constructs the worker, so there is no __init__ of ours to make this in.
        if "_verl_worker_weights" not in self.__dict__:
            self.__dict__["_verl_worker_weights"] = WorkerWeights(self)
        return self.__dict__["_verl_worker_weights"]

    def monkey_patch_model(self, vocab_size: int) -> None:
        """Keep the sampler inside the tokenizer's vocabulary."""
        monkey_patch_compute_logits(self.get_model(), vocab_size)

    def verl_begin_weights(
        self,
        version: int,
        use_shm: bool = False,
        deadline_s: float = DEFAULT_DEADLINE_S,
        peft_config: dict[str, Any] | None = None,
        base_sync_done: bool = False,
        stage: bool | None = None,
    ) -> dict[str, Any]:
        """Expect the weights of `version`; returns at once with where they are expected and whether they are staged.

        With `stages` false nothing is received until `verl_apply_weights`, which then blocks until all has come;
        `stage` decides it, None leaves it to the free memory.
        """
        return self._verl_weights.begin(
            version, use_shm, deadline_s, stage, peft_config=peft_config, base_sync_done=base_sync_done
        )

    def verl_apply_weights(self, version: int) -> dict[str, Any]:
        """Load what was staged; on failure the worker is stale until a whole version has been loaded."""
        return self._verl_weights.apply(version)

    def verl_abort_weights(self, version: int, reason: str) -> None:
        """Forget the transfer of `version`."""
        self._verl_weights.abort(version, reason)

    def verl_weight_state(self) -> dict[str, Any]:
        """version, stale, staged_version, digest, receiving, error."""
        return self._verl_weights.state()

    def verl_weight_digests(self, names: list[str] | None = None) -> dict[str, str]:
        """Checksums of the tensors of the serving version, as they arrived."""
        return self._verl_weights.digests(names)

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> dict[str, Any]:
        """Receive and load in one blocking call, whatever version comes; generation must be paused."""
        return self._verl_weights.receive_and_apply(use_shm, peft_config=peft_config, base_sync_done=base_sync_done)

    def _get_zmq_handle(self) -> str:
        return self._verl_weights.handle


class vLLMOmniColocateWorkerExtension(vLLMColocateWorkerExtension):
    """The same for vLLM-Omni's workers: same addresses, same transaction; adapters need vLLM-Omni's own loader."""

    def verl_begin_weights(self, version: int, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if kwargs.get("peft_config"):
            raise UnsupportedError(
                "adapters cannot be sent to vLLM-Omni",
                remedy="set actor_rollout_ref.model.lora.merge=True to send merged weights",
            )
        return super().verl_begin_weights(version, *args, **kwargs)


class SuppressSignalInThread:
    """Inside the block, installing a signal handler off the main thread does nothing instead of raising."""

    def __init__(self) -> None:
        self._original = signal.signal

    def __enter__(self) -> "SuppressSignalInThread":
        def install(number: int, handler: Callable[[int, FrameType | None], Any] | int | None) -> Any:
            if threading.current_thread() is threading.main_thread():
                return self._original(number, handler)
            return signal.getsignal(number)

        signal.signal = install  # type: ignore[assignment]
        return self

    def __exit__(self, *exc_info: object) -> None:
        signal.signal = self._original


def build_cli_args_from_config(config: dict[str, Any]) -> list[str]:
    """Command-line words for a mapping: None and False vanish, True is a bare flag, lists spread, dicts become JSON."""
    words: list[str] = []
    for key, value in config.items():
        flag = f"--{key.replace('_', '-')}" if not key.startswith("-") else key
        if value is None or value is False or (isinstance(value, list | tuple) and not value):
            continue
        words.append(flag)
        if value is True:
            continue
        if isinstance(value, dict):
            words.append(json.dumps(value))
        elif isinstance(value, list | tuple):
            words.extend(str(item) for item in value)
        else:
            words.append(str(value))
    return words


def extract_prompt_logprobs(output: Any, num_prompt_logprobs: int | None, result_dict: dict[str, list[Any]]) -> None:
    """Put `prompt_ids` and `prompt_logprobs` of a request output into `result_dict`.

    Each position lists its `num_prompt_logprobs` most likely tokens; with 0 it has the prompt's own token. The first
    position has no prediction: zeros keep the lengths equal.
    """
    if num_prompt_logprobs is None:
        return
    width = max(1, num_prompt_logprobs)
    ids: list[list[int]] = [[0] * width]
    values: list[list[float]] = [[0.0] * width]
    for position in output.prompt_logprobs[1:]:
        ranked = sorted(position.items(), key=lambda item: item[1].rank)
        if num_prompt_logprobs > 0:
            ranked = [item for item in ranked if item[1].rank <= num_prompt_logprobs]
        ids.append([token for token, _ in ranked[:width]])
        values.append([entry.logprob for _, entry in ranked[:width]])
    result_dict["prompt_ids"] = ids
    result_dict["prompt_logprobs"] = values
