# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The contract between trainers and training engines, and the registry that finds an engine by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
import torch.distributed as dist

from verl.errors import UnsupportedError
from verl.platform import current_platform
from verl.protocol import DataProto
from verl.registry import Registry

Metrics = dict[str, Any]


class LossFunction(Protocol):
    """Loss of one micro-batch.

    `batch_num_tokens` and `global_batch_size` count the whole mini-batch over all ranks, so the losses of
    micro-batches and ranks add up to the loss of the mini-batch; the factor `dp_size` undoes the averaging of
    gradients over ranks.
    """

    def __call__(
        self,
        model_output: Mapping[str, torch.Tensor],
        micro: DataProto,
        *,
        dp_size: int,
        batch_num_tokens: int,
        global_batch_size: int,
    ) -> tuple[torch.Tensor, Metrics]: ...


class BaseEngine(ABC):
    """One rank of a model that is trained or only evaluated; all ranks make the same calls in the same order."""

    weights_id: int | None = None
    """Names the current weights; None where the engine does not tell one state of them from another."""

    hf_config: Any = None
    """The model's Hugging Face configuration, from which its FLOPs are counted; None where the engine has none."""

    @abstractmethod
    def initialize(self) -> None:
        """Build model, optimizer and schedule; joins the process group if this process is in none."""

    @property
    @abstractmethod
    def is_param_offload_enabled(self) -> bool:
        """Whether parameters live in host memory between calls."""

    @property
    @abstractmethod
    def is_optimizer_offload_enabled(self) -> bool:
        """Whether optimizer state lives in host memory between calls."""

    @abstractmethod
    def train_mode(self, **kwargs: Any) -> AbstractContextManager[Any]:
        """Parameters and optimizer state on the device, module in training mode."""

    @abstractmethod
    def eval_mode(self, **kwargs: Any) -> AbstractContextManager[Any]:
        """Parameters on the device, module in evaluation mode, no gradients."""

    @abstractmethod
    def optimizer_zero_grad(self) -> None: ...

    @abstractmethod
    def optimizer_step(self) -> float:
        """Clip and step; returns the gradient norm. A non-finite norm skips the step."""

    @abstractmethod
    def lr_scheduler_step(self) -> float:
        """Advance the schedule; returns the learning rate that the step before used."""

    @abstractmethod
    def forward_backward_batch(
        self, data: DataProto, loss_function: LossFunction | None, forward_only: bool = False
    ) -> list[Any]:
        """Run all micro-batches of one mini-batch; one result a micro-batch."""

    @abstractmethod
    def train_batch(self, data: DataProto, loss_function: LossFunction) -> Metrics:
        """One optimizer step over one mini-batch."""

    @abstractmethod
    def infer_batch(self, data: DataProto, outputs: frozenset[str]) -> DataProto:
        """`outputs` (of log_probs, entropy, sum_pi_squared, values) as `[B, T]` tensors in the order of the rows."""

    @abstractmethod
    def get_per_tensor_param(self, **kwargs: Any) -> tuple[Iterator[tuple[str, torch.Tensor]], dict[str, Any] | None]:
        """Full tensors under their published names, one at a time. Every rank must exhaust the iterator."""

    @abstractmethod
    def get_data_parallel_size(self) -> int: ...

    @abstractmethod
    def get_data_parallel_rank(self) -> int: ...

    @abstractmethod
    def get_data_parallel_group(self) -> dist.ProcessGroup | None: ...

    @abstractmethod
    def to(self, device: str, model: bool = True, optimizer: bool = True, grad: bool = True) -> None:
        """Move the named parts to `device` ("cpu" or the platform's device type)."""

    @abstractmethod
    def save_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, global_step: int = 0, max_ckpt_to_keep: int | None = None
    ) -> None: ...

    @abstractmethod
    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False
    ) -> None: ...

    def save_model_to_cpu(self, n: int) -> None:
        """Keep a host copy of the weights under `n`."""
        raise _no_copies(self)

    def restore_model_from_cpu(self, n: int) -> None:
        """Put the copy `n` back."""
        raise _no_copies(self)

    def clear_cpu_model(self, n: int) -> None:
        """Forget the copy `n`."""
        raise _no_copies(self)

    @abstractmethod
    def is_mp_src_rank_with_outputs(self) -> bool:
        """Whether this rank's outputs count; False on all but one rank of a sequence-parallel group."""

    @abstractmethod
    def disable_adapter(self) -> AbstractContextManager[Any]:
        """The base model without its LoRA adapter, while the block runs."""


def _no_copies(engine: BaseEngine) -> UnsupportedError:
    return UnsupportedError(
        "this training engine keeps no host copies of its weights",
        got=type(engine).__name__,
        remedy="use strategy=fsdp, or implement save_model_to_cpu, restore_model_from_cpu and clear_cpu_model",
    )


class EngineRegistry:
    """Engines by `(model_type, backend, device type)`."""

    _engines: Registry[type[BaseEngine]] = Registry("training engine", key="strategy")

    @classmethod
    def register(
        cls, model_type: str, backend: list[str] | str, device: list[str] | str = "cuda"
    ) -> Callable[[type[BaseEngine]], type[BaseEngine]]:
        """Class decorator: the class serves every combination of the given backends and device types."""

        def add(engine: type[BaseEngine]) -> type[BaseEngine]:
            for name in [backend] if isinstance(backend, str) else backend:
                for kind in [device] if isinstance(device, str) else device:
                    cls._engines.register(f"{model_type}/{name}/{kind}")(engine)
            return engine

        return add

    @classmethod
    def get_engine_cls(cls, model_type: str, backend: str) -> type[BaseEngine]:
        """The class for this machine's device type; a backend without one is an `UnsupportedError`."""
        name = f"{model_type}/{backend}/{current_platform().device_type}"
        if name not in cls._engines:
            raise UnsupportedError(
                f"no training engine for {name}",
                where="strategy",
                got=backend,
                expected=f"one of {', '.join(cls._engines)}",
                remedy="use strategy=fsdp (FSDP2), or register an engine with EngineRegistry.register",
            )
        return cls._engines.get(name)

    @classmethod
    def new(cls, model_type: str, backend: str, *args: Any, **kwargs: Any) -> BaseEngine:
        """An engine of the registered class; nothing is loaded before `initialize`."""
        return cls.get_engine_cls(model_type, backend)(*args, **kwargs)
